// Users per rung: a bar per window, the highest rung at the bottom.

import uPlot from "./vendor/uplot/uPlot.esm.js";
import { Chart, axes, canvasFont, markWindow, timeRange } from "./charts.js";
import { compact } from "./format.js";
import { shadeOpen } from "./openwindows.js";
import { rungColour } from "./palette.js";
import { isSettled } from "./settled.js";

export class UsersChart extends Chart {
  constructor(container, { picked }) {
    super(container);
    this.picked = picked;
  }

  update({ windows, copies, rungs, stepMs, marked, dark }) {
    this.marked = marked;
    // Each series holds the users of its rung and of all higher ones, so that later, shorter bars cover earlier ones:
    // the highest rung is at the bottom.
    const data = [windows.map((window) => window.window_start_ms / 1000)];
    for (let rung = 0; rung < rungs; rung += 1) {
      data.push(windows.map((window) => window.users_per_rung.slice(rung).reduce((sum, users) => sum + users, 0) / copies));
    }
    this.most = Math.max(1, ...data[1]);
    this.starts = windows.map((window) => window.window_start_ms);
    this.open = windows.filter((window) => !isSettled(window)).map((window) => window.window_start_ms / 1000);
    this.feed(JSON.stringify([rungs, stepMs, dark]), data, () => this.options(rungs, stepMs, dark));
  }

  options(rungs, stepMs, dark) {
    const bars = uPlot.paths.bars({ size: [0.78, 64, 1], radius: 0.12 });
    const series = [{}];
    for (let rung = 0; rung < rungs; rung += 1) {
      const fill = rungColour(rung, rungs, dark);
      series.push({ fill, stroke: fill, width: 0, paths: bars, points: { show: false } });
    }
    const half = stepMs / 2000;
    return {
      series,
      axes: axes(stepMs, (value) => compact(value)),
      padding: [20, 30, 0, 0],
      scales: {
        x: { time: true, range: (u) => timeRange(u.data[0], half, half) },
        y: { range: () => [0, 1.06 * this.most] },
      },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
      hooks: {
        drawClear: [(u) => shadeOpen(u, this.open, half, canvasFont(11.5))],
        draw: [(u) => markWindow(u, this.marked)],
        ready: [(u) => u.over.addEventListener("click", () => u.cursor.idx != null && this.picked(this.starts[u.cursor.idx]))],
      },
    };
  }
}
