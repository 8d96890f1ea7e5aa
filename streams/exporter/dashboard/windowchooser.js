// Which window all panels show: the newest settled one, or one that was chosen.

import { h, setAttribute, setText } from "./dom.js";
import { go, state } from "./state.js";
import { time } from "./zone.js";

export class WindowChooser {
  constructor(view) {
    this.view = view;
    const button = (label, text, click) => h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, on: { click } }, text);
    this.name = h("strong", {});
    this.chip = h("span", { class: "chip" });
    this.newest = h("button", { type: "button", class: "small-button", "aria-pressed": "true", on: { click: () => go({ window: null }) } }, "follow");
    this.problem = h("span", { class: "range-note", role: "status" });
    this.node = h("div", { class: "chooser", role: "group", "aria-label": "Window of all panels" },
      h("span", { class: "chooser-title" }, "Window"), button("Older window", "‹", () => this.step(-1)), this.name, this.chip,
      button("Newer window", "›", () => this.step(1)), this.newest, this.problem);
  }

  step(direction) {
    const { sorted } = this.view.store;
    const shown = (this.view.current() ?? sorted.at(-1))?.window_start_ms;
    if (shown === undefined) return;
    const next = direction < 0 ? sorted.findLast((one) => one.window_start_ms < shown) : sorted.find((one) => one.window_start_ms > shown);
    if (next) go({ window: next.window_start_ms });
  }

  /** Say that the chosen window has no estimate (any more); null: take it back. */
  missing(start) {
    setText(this.problem, start === null ? "" : `no estimate is kept for ${time(start, this.view.info.window_step_ms)}; the newest is shown`);
  }

  draw(window) {
    const { info, clock } = this.view;
    setText(this.name, window === null ? "none settled yet" : time(window.window_start_ms, info.window_step_ms, clock()));
    setText(this.chip, window === null ? "" : window.state);
    this.chip.hidden = window === null;
    setAttribute(this.chip, "data-window-state", window?.state ?? null);
    setAttribute(this.newest, "aria-pressed", state.window === null);
  }
}
