// The figures of surveys with many values: a heat map over windows, and a map where the values are cells of a grid.

import { Figure } from "./figures.js";
import { windowsRows } from "./exportrows.js";
import { ends, number, halfWidth, plural, quantityOf } from "./format.js";
import { term } from "./help.js";
import { HeatMap } from "./heatmap.js";
import { MapChart } from "./mapchart.js";
import { isSettled } from "./settled.js";
import { go } from "./state.js";

const LEAST_VALUES = 13;
const HEAT_ROWS = 40;

export class CellFigures {
  /** view: the page of the survey, whose order, focus and windows are drawn. */
  constructor(view) {
    this.view = view;
    const { info } = view;
    const figure = (title, name, rows) => new Figure(title, name, {
      exported: () => ({ name: `${info.id}-${name}`, ...rows() }), pictured: () => ({ name: `${info.id}-${name}`, question: info.question }), opened: () => view.draw(),
    });
    this.heat = figure(["Many values over ", term("window", "windows")], "heat", () => windowsRows(info, view.store.sorted, this.rows.map(({ index }) => index)));
    this.map = figure("Map", "map", () => windowsRows(info, [view.current()].filter(Boolean), info.grid.cells));
    this.rows = [];
    this.heatMap = new HeatMap(this.heat.body, { picked: ({ start, index }) => go({ window: start, ...(index === null ? {} : { value: info.values[index] }) }) });
    this.mapChart = new MapChart(this.map.body, { picked: ({ index }) => view.choose(index) });
    this.heat.node.hidden = true;
    this.map.node.hidden = true;
    this.nodes = [this.map.node, this.heat.node];
  }

  get figures() {
    return [this.heat, this.map];
  }

  leave() {
    this.heatMap.destroy();
    this.mapChart.destroy();
  }

  draw(window, listed, dark) {
    const { info, focus } = this.view;
    const quantity = quantityOf(info, focus);
    const many = quantity.kind === "share" && listed.length >= LEAST_VALUES;
    this.heat.node.hidden = !many;
    if (many) this.drawHeat(window, listed, quantity, dark);
    this.map.node.hidden = !info.grid || window === null;
    if (!this.map.node.hidden) this.drawMap(window, quantity, dark);
  }

  drawHeat(window, listed, quantity, dark) {
    const { info, focus, names, store: { sorted } } = this.view;
    this.rows = listed.slice(0, HEAT_ROWS).map(({ index }) => ({ index, short: names[index], label: quantityOf(info, index).name }));
    this.heatMap.update({ windows: sorted, rows: this.rows, quantity, marked: window?.window_start_ms, focus, stepMs: info.window_step_ms, dark });
    this.heat.say(`${plural(this.rows.length, "value")} by lower bound. Colour is the lower end of the band, darkest at ${this.darkest(sorted.filter(isSettled), this.rows.map(({ index }) => index), quantity)}: what is pale may be none. Windows that are not settled are grey.`);
    this.heat.list(() => [["value", ...sorted.map((one) => this.view.marked(one))],
      this.rows.map(({ index, label }) => [label, ...sorted.map((one) => number(one.values[index].estimate, quantity, halfWidth(one.values[index]) ?? 0.01))])]);
  }

  /** The largest lower end of these values in these windows. */
  darkest(windows, indices, quantity) {
    const cells = windows.flatMap(({ values }) => indices.map((index) => values[index])).filter(({ lower }) => lower !== null);
    if (cells.length === 0) return "none yet";
    const top = cells.reduce((best, cell) => (cell.lower > best.lower ? cell : best));
    return number(Math.max(top.lower, 0), quantity, halfWidth(top) ?? 0.01);
  }

  drawMap(window, quantity, dark) {
    const { info, focus } = this.view;
    this.mapChart.update({ grid: info.grid, values: window.values, names: info.values, quantity, focus, dark });
    const cell = window.values[focus];
    const seen = info.grid.cells.filter((index) => window.values[index].simultaneous_lower > 0).length;
    this.map.say(`${info.values[focus]}: ${number(cell.estimate, quantity, halfWidth(cell) ?? 0.01)}, ${this.view.named(window)}. ${seen} of ${plural(info.grid.cells.length, "cell")} surely have someone, 95 % sure of all at once. Colour is the lower end of the band, darkest at ${this.darkest([window], info.grid.cells, quantity)}.`.replace("95 %", `${Number((100 * (1 - window.alpha)).toPrecision(4))} %`));
    this.map.list(() => [["cell", "estimate", "from", "to"], info.grid.cells.map((index) => {
      const row = window.values[index];
      return [info.values[index], number(row.estimate, quantity, halfWidth(row) ?? 0.01), ...ends(row, quantity)];
    })]);
  }
}
