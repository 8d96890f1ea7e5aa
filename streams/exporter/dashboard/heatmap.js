// The shares of many values over windows, a row per value: dark where the lower end of the band is high, so that noise
// stays pale.

import { CellPlot } from "./canvasplot.js";
import { cssVariable } from "./dom.js";
import { band, number, halfWidth } from "./format.js";
import { shareColour } from "./palette.js";
import { isSettled } from "./settled.js";
import { time } from "./zone.js";

const ROW = 17;
const FOOT = 20;

export class HeatMap extends CellPlot {
  /** given: {windows, rows: [{index, short, label}], quantity, marked, focus, stepMs, dark}. */
  draw() {
    const { windows, rows, marked, focus, dark } = this.given ?? { rows: [] };
    const begun = this.begin(ROW * rows.length + FOOT);
    if (begun === null) return;
    const { context, width } = begun;
    this.left = Math.min(0.4 * width, 12 + Math.max(...rows.map(({ short }) => context.measureText(short).width)));
    this.step = (width - this.left) / Math.max(1, windows.length);
    const highest = Math.max(1e-9, ...windows.filter(isSettled).flatMap((window) => rows.map(({ index }) => window.values[index].lower ?? 0)));
    rows.forEach(({ index, short }, row) => {
      context.fillStyle = index === focus ? cssVariable("--ink") : cssVariable("--muted");
      context.textAlign = "right";
      context.fillText(short, this.left - 6, ROW * (row + 0.5), this.left - 8);
      windows.forEach((window, column) => {
        const { lower } = window.values[index];
        const [x, y] = [this.left + column * this.step, ROW * row];
        if (!isSettled(window) || lower === null) context.fillStyle = cssVariable("--grid");
        else context.fillStyle = shareColour(lower / highest, dark);
        context.fillRect(x + 0.5, y + 0.5, Math.max(this.step - 1, 0.5), ROW - 1);
      });
    });
    this.drawFoot(context, width, windows, marked, rows.length);
  }

  drawFoot(context, width, windows, marked, rows) {
    const { stepMs } = this.given;
    context.textAlign = "left";
    context.fillStyle = cssVariable("--muted");
    let free = 0;
    windows.forEach((window, column) => {
      const x = this.left + column * this.step;
      const text = time(window.window_start_ms, stepMs);
      const room = context.measureText(text).width;
      if (x >= free && x + room <= width) {
        context.fillText(text, x, ROW * rows + FOOT / 2);
        free = x + room + 24;
      }
      if (window.window_start_ms !== marked) return;
      context.strokeStyle = cssVariable("--ink");
      context.strokeRect(x + 0.5, 0.5, this.step - 1, ROW * rows - 1);
    });
  }

  cellAt(x, y) {
    const { windows, rows, quantity, stepMs } = this.given ?? { windows: [] };
    const window = windows[Math.floor((x - this.left) / this.step)];
    const row = Math.floor(y / ROW);
    if (x < this.left || !window || row >= rows.length) return null;
    const { index, label } = rows[row];
    const cell = window.values[index];
    const said = cell.estimate === null ? "not known" : `${number(cell.estimate, quantity, halfWidth(cell) ?? 0.01)}  (${band(cell, quantity)})`;
    return { start: window.window_start_ms, index, text: `${label}\n${time(window.window_start_ms, stepMs)}${isSettled(window) ? "" : " · not settled"}\n${said}` };
  }
}
