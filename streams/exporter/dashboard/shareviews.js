// Views of a window's shares as a distribution, beside the unbiased estimates: chosen by a person, read when they are
// wanted, and for the likelihood of all reports asked of a worker and waited for.

import { api } from "./api.js";
import { h, setAttribute, setText } from "./dom.js";
import { go, state } from "./state.js";

const AGAIN_MS = 1000;
const BIASED = "A view, not the estimate: it is biased and has no band.";
const TITLES = { threshold: "significant values only", simplex: "nearest distribution", likelihood: "most likely distribution" };

export class ShareViews {
  constructor(info, changed) {
    this.info = info;
    this.changed = changed;
    this.key = null;
    this.found = null;
    this.trouble = "";
    const names = info.views ?? [];
    this.select = h("select", { "aria-label": "View beside the estimates", on: { change: () => go({ view: this.select.value || null }) } },
      h("option", { value: "" }, "estimates only"), names.map((name) => h("option", { value: name }, `beside them: ${TITLES[name] ?? name}`)));
    this.select.hidden = names.length === 0;
    this.note = h("p", { class: "left-over", data: { role: "view" }, role: "status", hidden: true });
  }

  /** The name of the view that is asked for; null if the survey has no such view. */
  get name() {
    return (this.info.views ?? []).includes(state.view) ? state.view : null;
  }

  /** The view of this window; null while there is none. */
  of(window) {
    if (this.name === null || window === null || window.withheld) return null;
    const key = `${this.name} ${window.window_start_ms} ${window.computed_ms}`;
    if (key !== this.key) {
      const same = this.found?.window_start_ms === window.window_start_ms;
      this.key = key;
      if (!same) this.found = null;
      this.load(key, window.window_start_ms);
    }
    return this.found?.views.find(({ name }) => name === this.name) ?? null;
  }

  async load(key, start) {
    try {
      const found = await api.views(this.info.id, start, this.name === "likelihood" ? "likelihood" : null);
      if (key !== this.key) return;
      this.found = found;
      this.trouble = "";
      const mine = found.views.find(({ name }) => name === this.name);
      if (mine && ["asked", "computing"].includes(mine.state)) setTimeout(() => key === this.key && this.load(key, start), AGAIN_MS);
    } catch (error) {
      if (key !== this.key) return;
      this.trouble = `The view cannot be read: ${error.message}.`;
    }
    this.changed();
  }

  /** Title of the column beside the estimates; empty without a view. */
  get title() {
    return this.name === null ? "" : `view: ${TITLES[this.name]}`;
  }

  draw(view) {
    if (document.activeElement !== this.select) this.select.value = this.name ?? "";
    this.note.hidden = this.name === null;
    setAttribute(this.note, "data-state", view?.state ?? "none");
    if (this.name === null) return;
    const waiting = view === null ? "Reading the view …"
      : view.state === "asked" ? "Asked for; a worker begins within seconds."
        : view.state === "computing" ? `A worker is computing it: ${Math.round(100 * (view.progress ?? 0))} %.`
          : view.state === "failed" ? `It could not be computed: ${view.note}` : view.note;
    setText(this.note, this.trouble || [view?.about ?? "", BIASED, waiting].filter(Boolean).join(" "));
  }
}
