// The values of one settled window, sorted by lower bound, each with its band as a bar.

import { CrossTables } from "./crosstables.js";
import { h, keyed, setAttribute, setText, svg } from "./dom.js";
import { saveCsv } from "./export.js";
import { saveButton } from "./figures.js";
import { OF_ALL, atOnce, bandInRange, bound, ends, halfWidth, isolated, number, opening, partnerOf, plural, points, quantityOf, sameScale, sentence, spoken, unbroken } from "./format.js";
import { term } from "./help.js";
import { shortByName } from "./labels.js";
import { ShareViews } from "./shareviews.js";
import { addsUp, othersOf } from "./others.js";
import { isSettled, openText, waitText } from "./settled.js";
import { go, state } from "./state.js";
import { time } from "./zone.js";

const ROWS_SHOWN = 12;
const LEAST_SEARCHED = 3;
const LONGEST_NAME = 54;
const SUBJECTS = { value: "value", string: "string", key: "key" };
const BESIDE = { share: "mean of its value", mean: "share with the key" };
export const NOT_ESTIMABLE = "not estimable";

/** A band in words, for a cell: "0.12 (0.02 – 0.22)", or that there is none. */
function cellText(row, quantity) {
  if (row.estimate === null) return NOT_ESTIMABLE;
  const known = halfWidth(row) !== null;
  return `${number(row.estimate, quantity, halfWidth(row) ?? 0.01)}${known ? ` (${bandInRange(row, quantity)})` : `, ${NOT_ESTIMABLE} closer`}`;
}

export class ValuesTable {
  constructor(info, { chosen, changed, exported }) {
    this.info = info;
    this.chosen = chosen;
    this.all = false;
    this.rows = h("tbody", {});
    const toggle = () => {
      this.all = !this.all;
      setAttribute(this.node, "data-all", this.all);
      changed();
    };
    this.more = h("button", { type: "button", class: "small-button more", hidden: true, on: { click: toggle } });
    this.title = h("h3", {});
    const { subject } = quantityOf(info, 0);
    this.subject = subject;
    this.short = shortByName(info.values.map((_, index) => quantityOf(info, index).name), LONGEST_NAME);
    const names = this.short.size;
    this.search = h("input", {
      type: "search", placeholder: `search ${plural(names, SUBJECTS[subject])}`, hidden: names < LEAST_SEARCHED, "aria-label": "Search values", autocomplete: "off", spellcheck: "false",
      on: { input: () => go({ q: this.search.value }, { replace: true }) },
    });
    this.kinds = h("div", { class: "buttons", role: "group", "aria-label": "Quantity" });
    const first = (kind) => info.values.findIndex((_, index) => quantityOf(info, index).kind === kind);
    for (const [kind, text] of [["share", "shares"], ["mean", "means"]]) {
      this.kinds.append(h("button", { type: "button", class: "small-button", data: { kind }, on: { click: () => go({ value: info.values[first(kind)], q: "" }) } }, text));
    }
    this.kinds.hidden = first("share") < 0 || first("mean") < 0;
    this.views = new ShareViews(info, changed);
    this.cross = new CrossTables(info);
    this.meaning = h("p", { class: "meaning" });
    this.none = h("p", { class: "none", role: "status", hidden: true });
    this.caption = h("p", { class: "sentence" });
    const head = h("tr", {}, h("th", { scope: "col" }, SUBJECTS[subject]), h("th", { scope: "col", class: "wide" }, term("band", "band")),
      h("th", { scope: "col", class: "num strong" }, term("estimate", "estimate")), h("th", { scope: "col", class: "num" }, "between"), this.beside = h("th", { scope: "col", class: "num beside" }),
      h("th", { scope: "col", class: "num truth" }, "truth"));
    this.state = h("span", { class: "chip", data: { role: "window-state" } });
    this.node = h("div", { class: "card figure figure-values", data: { chart: "values" } },
      h("div", { class: "figure-head" }, this.title, this.state),
      h("div", { class: "values-tools" }, this.search, this.kinds, this.views.select, saveButton("CSV", "values", () => saveCsv(exported()))), this.meaning, this.none,
      h("div", { class: "scroll" }, h("table", { class: "values" }, h("thead", {}, head), this.rows, this.rest = h("tfoot", {}))),
      this.more, this.left = h("p", { class: "left-over", data: { role: "unexplained" }, hidden: true }), this.derived = h("ul", { class: "left-over", data: { role: "derived" }, hidden: true }), this.cross.node, this.views.note, this.caption);
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
    setText(this.caption, unbroken(caption));
  }

  /** What the table says about its first value, which was chosen among many: with the band for all of them at once. */
  first(window, rows, quantity) {
    const top = atOnce(rows[0].row);
    const name = isolated(spoken(this.info, rows[0].index));
    if (rows.length === 1 && state.q.trim() === "") return `${isolated(opening(this.info, rows[0].index))}: ${sentence(window, rows[0].row, quantity)}.`;
    if (halfWidth(top) === null) return `First by lower bound is ${name}; there is no band for all values at once.`;
    const claim = rows.length > 1 ? OF_ALL : "";
    const beside = rows.slice(1).map(({ row }) => atOnce(row)).filter((row) => !(row.upper <= top.lower)).length;
    const order = beside === 0 ? "" : ` Its band overlaps that of ${plural(beside, "other value")}, so the order is not certain.`;
    const among = state.q.trim() === "" ? "First" : `First of ${plural(rows.length, "value")} found`;
    return `${among} is ${name}: ${sentence(window, top, quantity, claim)}.${order}`;
  }

  /** rows: [{row, index}] by lower bound; colour(index): null for values that have no line. */
  update({ window, rows: sorted, focus, quantity, colour, stepMs, now }) {
    // A number and its square have no order but that of the survey.
    const ordered = sorted.every(({ index }) => sameScale(quantityOf(this.info, index), quantity));
    const rows = ordered ? sorted : [...sorted].sort((a, b) => a.index - b.index);
    for (const button of this.kinds.children) setAttribute(button, "aria-pressed", button.dataset.kind === quantity.kind);
    setText(this.meaning, this.about(quantity));
    this.drawLeft(window, quantity);
    this.drawDerived(window);
    const view = this.views.of(window);
    this.views.draw(view);
    setText(this.beside, this.subject === "key" ? BESIDE[quantity.kind] : this.subject === "string" ? "standard error" : this.views.title);
    setAttribute(this.rows.parentElement, "data-beside", this.beside.textContent !== "");
    this.none.hidden = rows.length > 0;
    setText(this.none, `No value matches “${state.q.trim()}”.`);
    const shown = this.all ? rows : rows.slice(0, ROWS_SHOWN);
    const alike = (some) => some.filter(({ index }) => sameScale(quantityOf(this.info, index), quantity));
    const halves = alike(shown).map(({ row }) => halfWidth(row)).filter((half) => half !== null);
    const finest = halves.length ? Math.min(...halves) : 0.01;
    // A mean is drawn in the range of its numbers, where it can lie.
    const lowest = Math.min(quantity.low, ...alike(shown).map(({ row }) => row.lower ?? Infinity));
    const cut = state.q.trim() === "" && addsUp(this.info) && shown.length < rows.length;
    const rest = cut ? othersOf(window, new Set(shown.map(({ index }) => index))) : null;
    const highest = Math.max(quantity.kind === "share" ? -Infinity : quantity.high, ...alike(shown).map(({ row }) => row.upper ?? -Infinity), lowest + 1e-6);
    const place = (value) => ((100 * (value - lowest)) / (highest - lowest)).toFixed(2);
    const truth = window.truth?.shares ?? null;
    setAttribute(this.rows.parentElement, "data-truth", truth !== null);
    keyed(this.rows, shown, ({ index }) => index, ({ index }) => this.make(index), (node, { row, index }) => {
      setAttribute(node, "aria-selected", index === focus);
      const own = quantityOf(this.info, index);
      // A number and its square have a range and a unit each.
      const apart = sameScale(own, quantity) ? {} : { quantity: own, finest: halfWidth(row) ?? 0.01, place: (value) => ((100 * (value - own.low)) / (own.high - own.low)).toFixed(2) };
      this.fill(node, row, { place, finest, quantity, colour: colour(index) ?? "var(--muted)", real: truth?.[index] ?? null, beside: this.besideText(window, index, view, finest), ...apart });
    });
    this.drawRest(rest, { finest, quantity });
    this.more.hidden = rows.length <= ROWS_SHOWN;
    setText(this.more, this.all ? "show fewer" : `show all ${rows.length}`);
    const when = time(window.window_start_ms, stepMs, now);
    const title = !ordered ? "Values" : this.info.values.length > 1 ? "Values by lower bound" : quantity.kind === "mean" ? "Mean" : "Share";
    if (isSettled(window)) this.show("settled", `${title}, ${when}`, "settled", alike(rows).length ? this.first(window, alike(rows), quantity) : "");
    else this.show(window.state, `Values, ${when}`, "not settled", window.withheld ? `No estimate: ${openText(window, now)}.` : `Not settled: ${openText(window, now)}. The numbers will change; the order is that of the newest settled window.`);
  }

  /** The last row: all values that are not listed, as one number. */
  drawRest(others, { finest, quantity }) {
    keyed(this.rest, others === null ? [] : [others], () => "others", () => {
      const parts = this.parts();
      const node = h("tr", { data: { role: "others" } }, parts.name = h("th", { scope: "row" }), h("td", { class: "wide" }), parts.estimate, parts.between, parts.beside, parts.truth);
      node.parts = parts;
      return node;
    }, (node) => {
      setText(node.parts.name, `all ${others.count} others`);
      this.fill(node, others, { place: () => 0, finest, quantity, colour: "var(--muted)", real: others.truth, beside: "" });
      setText(node.parts.between, "no band");
      setAttribute(node.parts.between, "title", "Which values these are was chosen by the estimates: no band holds after such a choice.");
    });
  }

  /** What is estimated, and between which ends it can lie. */
  about({ kind, low, high, meaning, unit }) {
    const range = kind === "share" ? "" : `, between ${[low, high].map(bound).join(" and ")}${unit ? ` ${unit}` : ""}`;
    const hidden = this.info.protects === "sensitive values" ? " Only values marked as sensitive are hidden." : "";
    return meaning === "" ? "" : `Estimated: ${meaning}${range}.${hidden}`;
  }

  /** Where strings are decoded with candidates: the share that none of them explains. */
  drawLeft({ unexplained }, quantity) {
    this.left.hidden = !unexplained;
    if (!unexplained) return;
    const half = halfWidth(unexplained) ?? 0.01;
    const error = points(Math.sqrt(unexplained.variance), quantity).replace("±", "");
    setText(this.left, `Explained by no candidate: ${number(unexplained.estimate, quantity, half)} of devices, standard error ${error}, between ${ends(unexplained, quantity).join(" and ")}.`);
  }

  /** Totals and averages over all values, where the mechanism has such; shares of attributes stand in tables. */
  drawDerived(window) {
    this.cross.update(window);
    const listed = (window.derived ?? []).filter(({ name }) => !this.cross.has(name));
    this.derived.hidden = listed.length === 0;
    keyed(this.derived, listed, ({ name }) => name, ({ name }) => h("li", { data: { derived: name } }), (node, one) => {
      const quantity = { kind: one.kind === "share" ? "share" : "mean", unit: "" };
      setText(node, `${one.meaning[0].toUpperCase()}${one.meaning.slice(1)}: ${cellText(one, quantity)}`);
    });
  }

  /** The cell beside the band: the share of the view, the other quantity of a key, or the standard error of a string. */
  besideText(window, index, view, finest) {
    if (this.subject === "value" && this.views.name !== null) {
      const share = view?.shares?.[index] ?? null;
      return share === null ? "…" : number(share, quantityOf(this.info, index), finest);
    }
    const quantity = quantityOf(this.info, index);
    if (this.subject === "string") {
      const { variance } = window.values[index];
      return variance === null ? "–" : points(Math.sqrt(variance), quantity).replace("±", "");
    }
    const other = partnerOf(this.info, index);
    // The band on a line of its own, so that the column is narrow.
    return other < 0 ? "" : cellText(window.values[other], quantityOf(this.info, other)).replace(" (", "\n(");
  }

  fill(node, row, { place, finest, quantity, colour, real, beside }) {
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
    setText(parts.estimate, row.estimate === null ? NOT_ESTIMABLE : say(row.estimate));
    setText(parts.between, known ? bandInRange(row, quantity, finest) : row.estimate === null ? "too few devices" : NOT_ESTIMABLE);
    setText(parts.beside, beside);
    setText(parts.truth, real === null ? "" : say(real));
  }

  /** The cells of a row. */
  parts() {
    const parts = {
      swatch: h("i", { "aria-hidden": "true" }),
      bar: svg("line", { class: "whisker", y1: 10, y2: 10 }),
      tick: svg("line", { class: "tick", y1: 4, y2: 16 }),
      real: svg("line", { class: "real", y1: 2, y2: 18 }),
      estimate: h("td", { class: "num strong" }),
      between: h("td", { class: "num" }),
      beside: h("td", { class: "num beside" }),
      truth: h("td", { class: "num truth" }),
    };
    parts.picture = svg("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" }, parts.bar, parts.tick, parts.real);
    return parts;
  }

  make(index) {
    const parts = this.parts();
    const { name: text, sensitive } = quantityOf(this.info, index);
    const mark = this.info.protects !== "sensitive values" ? null
      : h("small", { class: "mark-sensitive", data: { sensitive } }, sensitive ? "sensitive" : "not hidden");
    const name = h("button", { type: "button", class: "value-name", title: this.info.values[index], on: { click: () => this.chosen(index) } }, parts.swatch, h("span", { dir: "auto" }, this.short.get(text)));
    const node = h("tr", { data: { value: this.info.values[index] } }, h("th", { scope: "row" }, name, mark), h("td", { class: "wide" }, parts.picture),
      parts.estimate, parts.between, parts.beside, parts.truth);
    node.parts = parts;
    return node;
  }
}
