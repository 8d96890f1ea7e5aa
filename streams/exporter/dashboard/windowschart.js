// Estimates over windows: a line with its band per value, the truth of simulated devices dotted.

import { Chart, axes, canvasFont, font, invisible, markWindow, timeRange } from "./charts.js";
import { cssVariable, h, keyed, setAttribute, setText } from "./dom.js";
import { axisNumber, band, number, halfWidth } from "./format.js";
import { drawOpen, shadeOpen } from "./openwindows.js";
import { faded } from "./palette.js";
import { isSettled } from "./settled.js";
import { time } from "./zone.js";

const POINTS_SHOWN = 120;
const LEAST_PIXELS = 6;

/** A small table beside the pointer; screen readers have the sentence and the numbers under the chart. */
class Tip {
  constructor(container) {
    this.title = h("p", {});
    this.rows = h("table", {}, h("tbody", {}));
    this.node = h("div", { class: "tip", "aria-hidden": "true", hidden: true }, this.title, this.rows);
    container.append(this.node);
  }

  hide() {
    this.node.hidden = true;
  }

  show(u, left, title, rows) {
    this.node.hidden = false;
    setText(this.title, title);
    keyed(this.rows.tBodies[0], rows, ({ name }) => name,
      () => h("tr", {}, h("td", {}, h("i", {})), h("td", {}), h("td", {})),
      (row, { name, colour, text }) => {
        row.cells[0].firstElementChild.style.background = colour;
        setText(row.cells[1], name);
        setText(row.cells[2], text);
      });
    // Beside the pointer, on the side that has room.
    const place = u.over.offsetLeft + left;
    const right = left > u.over.clientWidth / 2;
    this.node.style.left = right ? "auto" : `${place + 14}px`;
    this.node.style.right = right ? `${this.node.parentElement.clientWidth - place + 14}px` : "auto";
  }
}

/** Largest and smallest bound of settled windows, without the few whose bands are very wide: those are cut at the edge. */
function robustRange(lows, highs, halves, quantity, openEstimates) {
  const sorted = halves.filter((half) => half !== null).sort((a, b) => a - b);
  if (sorted.length === 0) return rangeBefore(openEstimates, quantity);
  const limit = 4 * sorted[Math.floor(sorted.length / 2)];
  let low = Infinity;
  let high = -Infinity;
  halves.forEach((half, i) => {
    if (half === null || half > limit) return;
    low = Math.min(low, lows[i]);
    high = Math.max(high, highs[i]);
  });
  const margin = 0.06 * (high - low || 0.1);
  if (quantity.kind === "share" && low >= 0 && low < 0.25 * high) return [Math.min(0, low - margin), high + margin];
  return [low - margin, high + margin];
}

/** The y axis before a window has settled: all possible shares, or room around means that are not settled. */
function rangeBefore(estimates, quantity) {
  if (quantity.kind === "share" || estimates.length === 0) return [0, 1];
  const [low, high] = [Math.min(...estimates), Math.max(...estimates)];
  const margin = Math.max(high - low, Math.abs(high), 1e-6);
  return [low - margin, high + margin];
}

export class WindowsChart extends Chart {
  /** picked(start): a window was chosen; zoomed(from, to): a range of times was drawn; unzoomed(): a double click. */
  constructor(container, { picked, zoomed, unzoomed }) {
    super(container);
    this.picked = picked;
    this.zoomed = zoomed;
    this.unzoomed = unzoomed;
    this.tip = new Tip(container);
  }

  /** windows: oldest first; values: [{index, label, short, colour, focused}], drawn in this order. */
  update({ windows, values, quantity, stepMs, marked, dark }) {
    this.values = values;
    this.windows = windows;
    this.dense = windows.length > POINTS_SHOWN;
    this.marked = marked;
    this.quantity = quantity;
    const columns = [[]];
    values.forEach(() => columns.push([], [], [], []));
    this.starts = [];
    this.open = [];
    let before = null;
    for (const window of windows) {
      if (before !== null && window.window_start_ms - before > 1.5 * stepMs) {
        // A window without a single report is a gap, not a straight line.
        columns.forEach((column, i) => column.push(i ? null : (before + stepMs) / 1000));
        this.starts.push(null);
      }
      before = window.window_start_ms;
      columns[0].push(before / 1000);
      this.starts.push(before);
      const settled = isSettled(window);
      if (!settled) this.open.push({ x: before / 1000, rows: values.map(({ index }) => window.values[index]) });
      values.forEach(({ index }, i) => {
        const row = settled ? window.values[index] : { estimate: null, lower: null, upper: null };
        columns[4 * i + 1].push(row.estimate);
        columns[4 * i + 2].push(row.lower);
        columns[4 * i + 3].push(row.upper);
        columns[4 * i + 4].push(window.truth?.shares[index] ?? null);
      });
    }
    const lows = [], highs = [], halves = [];
    values.forEach((_, i) => {
      columns[4 * i + 2].forEach((low, w) => {
        const high = columns[4 * i + 3][w];
        lows.push(low);
        highs.push(high);
        halves.push(low === null || high === null ? null : (high - low) / 2);
      });
    });
    const estimates = this.open.flatMap(({ rows }) => rows.map((row) => row.estimate)).filter((estimate) => estimate !== null);
    this.range = robustRange(lows, highs, halves, quantity, estimates);
    setAttribute(this.container, "data-range", this.range.join(" "));
    setAttribute(this.container, "data-open", this.open.length);
    const shape = JSON.stringify([values.map((v) => [v.index, v.focused, v.colour]), quantity, stepMs, dark, this.dense]);
    this.feed(shape, columns, () => this.options(stepMs));
  }

  options(stepMs) {
    const ink = cssVariable("--ink");
    const series = [{}];
    const bands = [];
    this.values.forEach(({ label, colour, focused }, i) => {
      series.push(
        { label, stroke: colour, width: focused ? 2.6 : 1.5, points: { show: !this.dense, size: focused ? 6 : 4, fill: colour, width: 0 } },
        invisible(),
        invisible(),
        { stroke: faded(ink.length === 7 ? ink : "#888888", focused ? 0.9 : 0.45), width: focused ? 2 : 1.4, dash: [2, 4], points: { show: false } },
      );
      bands.push({ series: [4 * i + 3, 4 * i + 2], fill: faded(colour, focused ? 0.3 : 0.09) });
    });
    const longest = Math.max(...this.values.map(({ short }) => short.length), 0);
    return {
      series,
      bands,
      axes: axes(stepMs, axisNumber(this.quantity), this.quantity.unit),
      padding: [20, this.narrow ? 10 : 14 + 8 * longest, 0, 0],
      scales: {
        x: { time: true, range: (u) => timeRange(u.data[0], stepMs / 2000) },
        y: { range: () => this.range },
      },
      cursor: {
        y: false, drag: { x: true, y: false, setScale: false }, points: { size: 8 },
        bind: { dblclick: () => () => this.unzoomed() },
      },
      hooks: {
        setCursor: [(u) => this.point(u, stepMs)],
        setSelect: [(u) => this.select(u)],
        drawClear: [(u) => shadeOpen(u, this.open.map(({ x }) => x), stepMs / 2000, canvasFont(11.5))],
        draw: [(u) => markWindow(u, this.marked), (u) => drawOpen(u, this.open, this.values), (u) => this.names(u)],
        ready: [(u) => u.over.addEventListener("click", () => u.cursor.idx != null && this.picked(this.starts[u.cursor.idx]))],
      },
    };
  }

  /** A range of times was drawn with the pointer. */
  select(u) {
    const { left, width } = u.select;
    if (width < LEAST_PIXELS) return;
    const [from, to] = [left, left + width].map((place) => Math.round(1000 * u.posToVal(place, "x")));
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.zoomed(from, to);
  }

  /** The numbers of the window under the pointer, beside it. */
  point(u, stepMs) {
    const { idx, left } = u.cursor;
    const start = idx == null || left < 0 ? null : this.starts[idx];
    const window = start === null ? undefined : this.windows.find((one) => one.window_start_ms === start);
    if (window === undefined) return this.tip.hide();
    return this.tip.show(u, left, `${time(start, stepMs)}${isSettled(window) ? "" : " · not settled"}`, this.values.map(({ index, short, colour }) => {
      const row = window.values[index];
      return { name: short, colour, text: `${number(row.estimate, this.quantity, halfWidth(row) ?? 0.01)}  (${band(row, this.quantity)})` };
    }));
  }

  /** Write the name of each line at its right end, without overlaps. */
  names(u) {
    if (this.narrow) return;
    const { ctx } = u;
    const ratio = devicePixelRatio;
    const labels = [];
    this.values.forEach(({ short, colour, focused }, i) => {
      const column = u.data[4 * i + 1];
      for (let w = column.length - 1; w >= 0; w -= 1) {
        if (column[w] !== null) {
          labels.push({ short, colour, focused, y: u.valToPos(column[w], "y", true) });
          break;
        }
      }
    });
    labels.sort((a, b) => a.y - b.y);
    const gap = parseInt(font(), 10) * 1.25 * ratio;
    const bottom = u.bbox.top + u.bbox.height;
    labels.forEach((item, i) => {
      item.y = Math.max(item.y, u.bbox.top + gap / 2, i ? labels[i - 1].y + gap : -Infinity);
    });
    for (let i = labels.length - 1, limit = bottom; i >= 0; i -= 1, limit -= gap) labels[i].y = Math.min(labels[i].y, limit);
    ctx.save();
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    for (const { short, colour, focused, y } of labels) {
      ctx.font = `${focused ? "600 " : ""}${parseInt(font(), 10) * ratio}px ${cssVariable("--font")}`;
      ctx.fillStyle = colour;
      ctx.fillText(short, u.bbox.left + u.bbox.width + 10 * ratio, y);
    }
    ctx.restore();
  }
}
