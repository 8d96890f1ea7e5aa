// The values of one settled window, sorted by lower bound, each with its band as a bar.

import { h, keyed, setAttribute, setText, svg } from "./dom.js";
import { saveCsv } from "./export.js";
import { saveButton } from "./figures.js";
import { atOnce, ends, halfWidth, number, plural, quantityOf, sentence } from "./format.js";
import { term } from "./help.js";
import { isSettled, openText, waitText } from "./settled.js";
import { go, state } from "./state.js";
import { time } from "./zone.js";

const ROWS_SHOWN = 12;

export class ValuesTable {
  constructor(info, { chosen, changed, exported }) {
    this.info = info;
    this.chosen = chosen;
    this.all = false;
    this.rows = h("tbody", {});
    const toggle = () => {
      this.all = !this.all;
      changed();
    };
    this.more = h("button", { type: "button", class: "small-button more", hidden: true, on: { click: toggle } });
    this.title = h("h3", {});
    this.search = h("input", {
      type: "search", placeholder: `search ${plural(info.values.length, "value")}`, "aria-label": "Search values", autocomplete: "off", spellcheck: "false",
      on: { input: () => go({ q: this.search.value }, { replace: true }) },
    });
    this.kinds = h("div", { class: "buttons", role: "group", "aria-label": "Quantity" });
    const first = (kind) => info.values.findIndex((_, index) => quantityOf(info, index).kind === kind);
    for (const [kind, text] of [["share", "shares"], ["mean", "means"]]) {
      this.kinds.append(h("button", { type: "button", class: "small-button", data: { kind }, on: { click: () => go({ value: info.values[first(kind)], q: "" }) } }, text));
    }
    this.kinds.hidden = first("share") < 0 || first("mean") < 0;
    this.meaning = h("p", { class: "meaning" });
    this.none = h("p", { class: "none", role: "status", hidden: true });
    this.caption = h("p", { class: "sentence" });
    const head = h("tr", {}, h("th", { scope: "col" }, "value"), h("th", { scope: "col", class: "wide" }, term("band", "band")),
      h("th", { scope: "col", class: "num strong" }, term("estimate", "estimate")), h("th", { scope: "col", class: "num" }, "between"),
      h("th", { scope: "col", class: "num truth" }, "truth"));
    this.state = h("span", { class: "chip", data: { role: "window-state" } });
    this.node = h("div", { class: "card figure figure-values", data: { chart: "values" } },
      h("div", { class: "figure-head" }, this.title, this.state),
      h("div", { class: "values-tools" }, this.search, this.kinds, saveButton("CSV", "values", () => saveCsv(exported()))), this.meaning, this.none,
      h("div", { class: "scroll" }, h("table", { class: "values" }, h("thead", {}, head), this.rows)),
      this.more, this.caption);
  }

  /** Before a window has settled there are no numbers to list. */
  wait(windows, now) {
    keyed(this.rows, [], String, null, null);
    this.more.hidden = true;
    this.show("none", "Values by lower bound", "not settled", waitText(windows, now));
  }

  show(windowState, title, chip, caption) {
    if (document.activeElement !== this.search) this.search.value = state.q;
    setAttribute(this.node, "data-state", windowState);
    setText(this.title, title);
    setText(this.state, chip);
    setText(this.caption, caption);
  }

  /** What the table says about its first value, which was chosen among many: with the band for all of them at once. */
  first(window, rows, quantity) {
    const top = atOnce(rows[0].row);
    if (halfWidth(top) === null) return `First by lower bound is ${top.value}; there is no band for all values at once.`;
    const claim = rows.length > 1 ? " of all values at once" : "";
    const beside = rows.slice(1).map(({ row }) => atOnce(row)).filter((row) => !(row.upper <= top.lower)).length;
    const order = beside === 0 ? "" : ` Its band overlaps that of ${plural(beside, "other value")}, so the order is not certain.`;
    const among = state.q.trim() === "" ? "First" : `First of ${plural(rows.length, "value")} found`;
    return `${among} is ${top.value}: ${sentence(window, top, quantity, claim)}.${order}`;
  }

  /** rows: [{row, index}] by lower bound; colour(index): null for values that have no line. */
  update({ window, rows, focus, quantity, colour, stepMs, now }) {
    for (const button of this.kinds.children) setAttribute(button, "aria-pressed", button.dataset.kind === quantity.kind);
    setText(this.meaning, quantity.meaning === "" ? "" : `Estimated: ${quantity.meaning}${quantity.unit ? `, in ${quantity.unit}` : ""}.`);
    this.none.hidden = rows.length > 0;
    setText(this.none, `No value matches “${state.q.trim()}”.`);
    const shown = this.all ? rows : rows.slice(0, ROWS_SHOWN);
    const halves = shown.map(({ row }) => halfWidth(row)).filter((half) => half !== null);
    const finest = halves.length ? Math.min(...halves) : 0.01;
    const lowest = Math.min(quantity.kind === "share" ? 0 : Infinity, ...shown.map(({ row }) => row.lower ?? Infinity));
    const highest = Math.max(...shown.map(({ row }) => row.upper ?? -Infinity), lowest + 1e-6);
    const place = (value) => ((100 * (value - lowest)) / (highest - lowest)).toFixed(2);
    const truth = window.truth?.shares ?? null;
    setAttribute(this.rows.parentElement, "data-truth", truth !== null);
    keyed(this.rows, shown, ({ index }) => index, ({ index }) => this.make(index), (node, { row, index }) => {
      setAttribute(node, "aria-selected", index === focus);
      this.fill(node, row, { place, finest, quantity, colour: colour(index) ?? "var(--muted)", real: truth?.[index] ?? null });
    });
    this.more.hidden = rows.length <= ROWS_SHOWN;
    setText(this.more, this.all ? "show fewer" : `show all ${rows.length}`);
    const when = time(window.window_start_ms, stepMs, now);
    if (isSettled(window)) this.show("settled", `Values by lower bound, ${when}`, "settled", rows.length ? this.first(window, rows, quantity) : "");
    else this.show(window.state, `Values, ${when}`, "not settled", `Not settled: ${openText(window, now)}. The numbers will change; the order is that of the newest settled window.`);
  }

  fill(node, row, { place, finest, quantity, colour, real }) {
    const { parts } = node;
    const known = halfWidth(row) !== null;
    const say = (value) => number(value, quantity, finest);
    const put = (line, from, to = from) => {
      setAttribute(line, "visibility", from === null ? "hidden" : "visible");
      if (from === null) return;
      setAttribute(line, "x1", place(from));
      setAttribute(line, "x2", place(to));
    };
    setAttribute(node, "data-lower", row.lower);
    setAttribute(node, "data-upper", row.upper);
    parts.swatch.style.background = colour;
    parts.bar.style.stroke = colour;
    parts.tick.style.stroke = colour;
    put(parts.bar, known ? row.lower : null, row.upper);
    put(parts.tick, row.estimate);
    put(parts.real, real);
    setText(parts.estimate, say(row.estimate));
    setText(parts.between, known ? ends(row, quantity, finest).join(" – ") : "–");
    setText(parts.truth, real === null ? "" : say(real));
  }

  make(index) {
    const parts = {
      swatch: h("i", { "aria-hidden": "true" }),
      bar: svg("line", { class: "whisker", y1: 10, y2: 10 }),
      tick: svg("line", { class: "tick", y1: 4, y2: 16 }),
      real: svg("line", { class: "real", y1: 2, y2: 18 }),
      estimate: h("td", { class: "num strong" }),
      between: h("td", { class: "num" }),
      truth: h("td", { class: "num truth" }),
    };
    const name = h("button", { type: "button", class: "value-name", title: this.info.values[index], on: { click: () => this.chosen(index) } }, parts.swatch, h("span", {}, this.info.values[index]));
    const picture = svg("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" }, parts.bar, parts.tick, parts.real);
    const node = h("tr", { data: { value: this.info.values[index] } }, h("th", { scope: "row" }, name), h("td", { class: "wide" }, picture),
      parts.estimate, parts.between, parts.truth);
    node.parts = parts;
    return node;
  }
}
