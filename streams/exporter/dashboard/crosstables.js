// Surveys with several attributes: a table for every two of them, with the share of each combination and of each value.

import { h, setText } from "./dom.js";
import { band, halfWidth, number } from "./format.js";

/** Cells that stand open, over all tables: a person unfolds the others. */
const CELLS_OPEN = 60;
const SHARE = { kind: "share", unit: "" };
const ALL = "all";

/** What a sum of shares is called: the attributes that it holds, each with its value, in the order of the survey. */
const nameOf = (...held) => held.map(([attribute, value]) => `${attribute} = ${value}`).join(", ");

export class CrossTables {
  constructor(info) {
    this.info = info;
    this.cells = new Map();
    this.node = h("div", { class: "cross-tables", data: { role: "cross-tables" }, hidden: true });
  }

  /** Whether a number stands in one of the tables. */
  has(name) {
    return this.cells.has(name);
  }

  update({ values, derived = [] }) {
    this.node.hidden = !this.info.attributes || derived.length === 0;
    if (this.node.hidden) return;
    if (this.cells.size === 0) this.build(derived);
    const sums = new Map(derived.map((one) => [one.name, one]));
    for (const [name, { places, position }] of this.cells) {
      const row = sums.get(name) ?? values[position];
      for (const { estimate, between } of places) {
        setText(estimate, number(row?.estimate, SHARE, (row && halfWidth(row)) ?? 0.01));
        setText(between, row && halfWidth(row) !== null ? band(row, SHARE) : "");
      }
    }
  }

  build(derived) {
    // The sums of single attributes come first. An object would put names that are numbers before the others.
    const order = [...new Set(derived.map(({ name }) => name.split(" = ", 1)[0]))];
    let open = CELLS_OPEN;
    order.forEach((first, at) => {
      for (const second of order.slice(at + 1)) {
        open -= this.info.attributes[first].length * this.info.attributes[second].length;
        this.node.append(this.table(first, second, order.length === 2, open >= 0));
      }
    });
  }

  /** A table of two attributes: the one with more values has the rows, so that phones have room for the columns. */
  table(first, second, isWhole, open) {
    const { attributes } = this.info;
    const turned = attributes[first].length < attributes[second].length;
    const [down, across] = turned ? [second, first] : [first, second];
    // Combinations of only two attributes are the values themselves, the last attribute changing fastest.
    const together = (row, column) => {
      const [one, other] = turned ? [column, row] : [row, column];
      const position = isWhole ? attributes[first].indexOf(one) * attributes[second].length + attributes[second].indexOf(other) : -1;
      return this.cell(nameOf([first, one], [second, other]), position);
    };
    const columns = attributes[across];
    const head = h("thead", {},
      h("tr", {}, h("th", { scope: "col", rowspan: 2 }, named(down)), h("th", { scope: "colgroup", colspan: columns.length }, named(across)), h("th", { scope: "col", rowspan: 2 }, ALL)),
      h("tr", {}, columns.map((column) => h("th", { scope: "col" }, named(column)))));
    const line = (title, cells) => h("tr", {}, h("th", { scope: "row" }, title), cells);
    const body = h("tbody", {}, attributes[down].map((row) => line(named(row), [...columns.map((column) => together(row, column)), this.cell(nameOf([down, row]))])));
    const foot = h("tfoot", {}, line(ALL, [...columns.map((column) => this.cell(nameOf([across, column]))), h("td", {})]));
    return h("details", { class: "cross", open, data: { pair: `${first}, ${second}` } },
      h("summary", {}, named(down), " by ", named(across)),
      h("div", { class: "scroll" }, h("table", {}, head, body, foot)));
  }

  /** A cell of a sum, or of the value at a position; one sum may stand in several tables. */
  cell(name, position = -1) {
    const estimate = h("span", { class: "strong" }), between = h("small", {});
    const known = this.cells.get(name) ?? { places: [], position };
    known.places.push({ estimate, between });
    this.cells.set(name, known);
    return h("td", { data: { derived: name } }, estimate, between);
  }
}

/** Names run in the direction of their script. */
const named = (text) => h("span", { dir: "auto" }, text);
