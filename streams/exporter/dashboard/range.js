// The time range of a survey's page: the newest windows, the last hours, or a fixed range; zoom and steps in time.

import { h, setAttribute, setText } from "./dom.js";
import { plural, span } from "./format.js";
import { go, state, writeSpan } from "./state.js";
import { SETTLED_SHOWN } from "./windows.js";
import { inputTime, readInputTime, time, zoneName } from "./zone.js";

const SPANS = [60_000, 300_000, 900_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000, 2_592_000_000];
const LEAST_WINDOWS = 8;
const CHOICES = 5;

/** The range that the address asks for. */
export function askedRange() {
  if (state.from !== null) return { from: state.from, to: state.to };
  return state.last === null ? {} : { last: state.last };
}

/** Spans that fit a survey: at least some windows, at most what is kept. */
function fittingSpans({ window_step_ms: step, retention_ms: kept, window_size_ms: size }) {
  const most = kept + size;
  return [...SPANS.filter((ms) => ms >= LEAST_WINDOWS * step && ms < 0.9 * kept).slice(0, CHOICES), most];
}

export class RangeControl {
  constructor(info, store, clock) {
    Object.assign(this, { info, store, clock });
    this.spans = fittingSpans(info);
    this.select = h("select", { id: `${info.id}-range`, on: { change: () => this.picked() } });
    this.from = h("input", { type: "datetime-local", step: 1, required: true });
    this.to = h("input", { type: "datetime-local", step: 1, required: true });
    this.problem = h("p", { class: "error", role: "alert" });
    const button = (label, text, click) => h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, on: { click } }, text);
    const zone = h("span", {});
    this.zone = zone;
    this.form = h("form", { class: "range-form card", hidden: true, on: { submit: (event) => this.submitted(event) } },
      h("label", {}, "From", this.from), h("label", {}, "To", this.to), zone,
      h("button", { type: "submit", class: "small-button" }, "Show"), this.problem);
    this.note = h("span", { class: "range-note", role: "status" });
    this.node = h("div", { class: "range", role: "group", "aria-label": "Time range" },
      h("label", { for: `${info.id}-range` }, "Range"), this.select,
      h("div", { class: "buttons" },
        button("Earlier", "←", () => this.move(-0.5)), button("Later", "→", () => this.move(0.5)),
        button("Zoom in", "+", () => this.zoom(0.5)), button("Zoom out", "−", () => this.zoom(2))),
      this.note, this.form);
    this.draw();
  }

  options() {
    const { window_size_ms: size } = this.info;
    const kept = this.spans.at(-1);
    const range = askedRange();
    const options = [["newest", `Newest ${SETTLED_SHOWN} windows`], ...this.spans.map((ms) => [writeSpan(ms), ms === kept ? `All kept (${span(kept - size)})` : `Last ${span(ms)}`])];
    if (range.last !== undefined && !this.spans.includes(range.last)) options.push([writeSpan(range.last), `Last ${span(range.last)}`]);
    if (range.from !== undefined) {
      const step = range.to - range.from >= 86_400_000 ? 3_600_000 : 1000;
      options.push(["fixed", `${time(range.from, step, this.clock())} – ${time(range.to, step, this.clock())}`]);
    }
    return [...options, ["choose", "Choose times …"]];
  }

  draw() {
    const range = askedRange();
    const options = this.options();
    if (JSON.stringify(options) !== this.shown) {
      this.shown = JSON.stringify(options);
      this.select.replaceChildren(...options.map(([value, text]) => h("option", { value }, text)));
    }
    if (this.form.hidden) this.select.value = range.from !== undefined ? "fixed" : range.last !== undefined ? writeSpan(range.last) : "newest";
    setText(this.zone, zoneName());
    const { sorted, truncated } = this.store;
    setText(this.note, sorted.length === 0 ? "" : truncated ? `newest ${plural(sorted.length, "window")} of the range; zoom in for earlier ones` : plural(sorted.length, "window"));
    setAttribute(this.node, "data-truncated", truncated);
  }

  picked() {
    const { value } = this.select;
    this.form.hidden = value !== "choose";
    if (value === "choose") {
      const [from, to] = this.seen();
      this.from.value = inputTime(from);
      this.to.value = inputTime(to);
      setText(this.problem, "");
      this.from.focus();
    } else if (value === "newest") this.set({});
    else if (value !== "fixed") this.set({ last: this.spans.find((ms) => writeSpan(ms) === value) ?? state.last });
  }

  submitted(event) {
    event.preventDefault();
    const [from, to] = [readInputTime(this.from.value), readInputTime(this.to.value)];
    if (from === null || to === null || from > to) {
      setText(this.problem, "The range must end after it begins.");
      return;
    }
    this.form.hidden = true;
    this.set({ from, to });
  }

  /** What is seen now, or would be if there were windows: [from, to] in milliseconds. */
  seen() {
    const { sorted } = this.store;
    const range = askedRange();
    if (range.from !== undefined) return [range.from, range.to];
    const end = sorted.at(-1)?.window_start_ms ?? this.clock();
    return [sorted[0]?.window_start_ms ?? end - SETTLED_SHOWN * this.info.window_step_ms, end];
  }

  set({ from = null, to = null, last = null }) {
    this.form.hidden = true;
    go({ from, to, last });
  }

  zoom(factor, middle = null) {
    const [from, to] = this.seen();
    const least = LEAST_WINDOWS * this.info.window_step_ms;
    const half = Math.max(least, (to - from) * factor) / 2;
    const centre = middle ?? (from + to) / 2;
    const end = Math.min(centre + half, Math.max(this.clock(), to));
    this.set({ from: Math.max(0, Math.round(end - 2 * half)), to: Math.round(end) });
  }

  /** Step by a part of what is seen. */
  move(part) {
    const [from, to] = this.seen();
    const by = Math.round(part * Math.max(to - from, this.info.window_step_ms));
    if (by > 0 && to + by >= this.clock()) this.set({});
    else this.set({ from: Math.max(0, from + by), to: Math.max(0, to + by) });
  }
}
