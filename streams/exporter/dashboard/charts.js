// Three charts on uPlot: estimates over windows, one window's history, users per rung. Each is created once and then gets
// new data, so that updates do not flicker; it is created again when its series or the theme change.

import uPlot from "./vendor/uplot/uPlot.esm.js";
import { cssVariable, setAttribute } from "./dom.js";
import { compact, epsilonText, time } from "./format.js";
import { drawOpen, shadeOpen } from "./openwindows.js";
import { faded, rungColour } from "./palette.js";
import { isSettled } from "./settled.js";

const NARROW = 560;
const stepped = uPlot.paths.stepped({ align: 1 });

function font(size = 12) {
  const scale = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
  return `${Math.round(size * scale)}px ${cssVariable("--font")}`;
}

function axes(stepMs, valueText) {
  const stroke = cssVariable("--muted");
  const grid = { stroke: cssVariable("--grid"), width: 1 };
  const scale = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
  return [
    {
      stroke, grid: { show: false }, ticks: { show: false }, font: font(), gap: 6, size: 30 * scale, space: 90 * scale,
      values: (_u, splits) => splits.map((seconds) => time(seconds * 1000, stepMs)),
    },
    {
      stroke, grid, ticks: { show: false }, font: font(), gap: 6, size: 52 * scale, space: 38 * scale,
      values: (_u, splits) => splits.map(valueText),
    },
  ];
}

const axisNumber = (quantity) => (value) =>
  quantity === "share" ? `${Number((100 * value).toFixed(1))} %` : String(Number(value.toPrecision(4)));

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
  if (quantity === "share" && low >= 0 && low < 0.25 * high) return [Math.min(0, low - margin), high + margin];
  return [low - margin, high + margin];
}

/** The y axis before a window has settled: all possible shares, or room around means that are not settled. */
function rangeBefore(estimates, quantity) {
  if (quantity === "share" || estimates.length === 0) return [0, 1];
  const [low, high] = [Math.min(...estimates), Math.max(...estimates)];
  const margin = Math.max(high - low, Math.abs(high), 1e-6);
  return [low - margin, high + margin];
}

class Chart {
  constructor(container) {
    this.container = container;
    this.plot = null;
    this.shape = "";
    new ResizeObserver(() => {
      if (!this.plot || container.clientWidth === 0) return;
      if ((container.clientWidth < NARROW) !== this.narrow) this.shape = "";
      this.plot.setSize({ width: container.clientWidth, height: container.clientHeight });
    }).observe(container);
  }

  /** Set the data; `options()` is called only for a new shape. */
  feed(shape, data, options) {
    const { clientWidth: width, clientHeight: height } = this.container;
    if (width === 0) return;
    const full = `${shape}|${width < NARROW}`;
    if (this.plot && this.shape === full) {
      this.plot.setData(data);
      return;
    }
    this.plot?.destroy();
    this.narrow = width < NARROW;
    this.shape = full;
    this.plot = new uPlot({ width, height, legend: { show: false }, ...options() }, data, this.container);
  }
}

const invisible = () => ({ stroke: "transparent", width: 0, points: { show: false } });

export class WindowsChart extends Chart {
  constructor(container, { hovered, picked }) {
    super(container);
    this.hovered = hovered;
    this.picked = picked;
  }

  /** windows: oldest first; values: [{index, label, colour, focused}], drawn in this order. */
  update({ windows, values, quantity, stepMs, marked, dark }) {
    this.values = values;
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
    const shape = JSON.stringify([values.map((v) => [v.index, v.focused, v.colour]), quantity, stepMs, dark]);
    this.feed(shape, columns, () => this.options(stepMs));
  }

  options(stepMs) {
    const ink = cssVariable("--ink");
    const series = [{}];
    const bands = [];
    this.values.forEach(({ label, colour, focused }, i) => {
      series.push(
        { label, stroke: colour, width: focused ? 2.6 : 1.5, points: { show: true, size: focused ? 6 : 4, fill: colour, width: 0 } },
        invisible(),
        invisible(),
        { stroke: faded(ink.length === 7 ? ink : "#888888", focused ? 0.9 : 0.45), width: focused ? 2 : 1.4, dash: [2, 4], points: { show: false } },
      );
      bands.push({ series: [4 * i + 3, 4 * i + 2], fill: faded(colour, focused ? 0.3 : 0.13) });
    });
    const longest = Math.max(...this.values.map(({ label }) => Math.min(label.length, 14)), 0);
    return {
      series,
      bands,
      axes: axes(stepMs, axisNumber(this.quantity)),
      padding: [20, this.narrow ? 10 : 14 + 8 * longest, 0, 0],
      scales: {
        x: { time: true, range: (_u, min, max) => [max > min ? min : min - stepMs / 1000, max + stepMs / 2000] },
        y: { range: () => this.range },
      },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 8 } },
      hooks: {
        setCursor: [(u) => this.hovered(u.cursor.idx == null || u.cursor.left < 0 ? null : this.starts[u.cursor.idx])],
        drawClear: [(u) => shadeOpen(u, this.open.map(({ x }) => x), stepMs / 2000, font(11.5))],
        draw: [(u) => this.mark(u), (u) => drawOpen(u, this.open, this.values), (u) => this.names(u)],
        ready: [(u) => u.over.addEventListener("click", () => u.cursor.idx != null && this.picked(this.starts[u.cursor.idx]))],
      },
    };
  }

  /** Write the name of each line at its right end, without overlaps. */
  names(u) {
    if (this.narrow) return;
    const { ctx } = u;
    const ratio = devicePixelRatio;
    const labels = [];
    this.values.forEach(({ label, colour, focused }, i) => {
      const column = u.data[4 * i + 1];
      for (let w = column.length - 1; w >= 0; w -= 1) {
        if (column[w] !== null) {
          labels.push({ label, colour, focused, y: u.valToPos(column[w], "y", true) });
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
    for (const { label, colour, focused, y } of labels) {
      ctx.font = `${focused ? "600 " : ""}${parseInt(font(), 10) * ratio}px ${cssVariable("--font")}`;
      ctx.fillStyle = colour;
      const shown = label.length > 14 ? `${label.slice(0, 13)}…` : label;
      ctx.fillText(shown, u.bbox.left + u.bbox.width + 10 * ratio, y);
    }
    ctx.restore();
  }

  /** Mark the window whose history is shown. */
  mark(u) {
    const w = this.starts.indexOf(this.marked);
    if (w < 0) return;
    const x = Math.round(u.valToPos(u.data[0][w], "x", true));
    const { ctx } = u;
    ctx.save();
    ctx.strokeStyle = cssVariable("--muted");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x, u.bbox.top);
    ctx.lineTo(x, u.bbox.top + u.bbox.height);
    ctx.stroke();
    ctx.restore();
  }
}

export class HistoryChart extends Chart {
  /** points: [{time_ms, estimate, lower, upper}], oldest first. */
  update({ points, truth, colour, quantity, openings, endMs, settledMs, epsilons, dark }) {
    this.openings = openings;
    this.epsilons = epsilons;
    this.endMs = endMs;
    const startMs = openings[0];
    // Late reports may arrive for days; they are in the table, and would compress the chart.
    const whole = settledMs - startMs;
    const limit = Math.max(settledMs + 0.15 * whole, Math.min(points.at(-1)?.time_ms ?? 0, settledMs + 0.6 * whole));
    const shown = points.filter((point) => point.time_ms <= limit);
    const data = [[], [], [], [], []];
    const put = (ms, point) => {
      data[0].push(ms / 1000);
      data[1].push(point.estimate);
      data[2].push(point.lower);
      data[3].push(point.upper);
      data[4].push(truth);
    };
    for (const point of shown) put(point.time_ms, point);
    // An estimate holds until the next one: draw it to the present.
    if (shown.length) put(Math.max(shown.at(-1).time_ms + 1, Math.min(limit, this.nowMs ?? limit)), shown.at(-1));
    this.xRange = [startMs / 1000, limit / 1000];
    this.yRange = this.heights(shown, truth);
    this.feed(JSON.stringify([colour, quantity, dark, startMs]), data, () => this.options(colour, quantity));
  }

  heights(shown, truth) {
    const known = shown.filter((point) => point.lower !== null && point.upper !== null);
    if (known.length === 0) return [0, 1];
    const middle = known.at(-1).estimate;
    // The whole band from the window's end on; before that few devices have answered, and it is cut at the edge.
    const closed = known.filter((point) => point.time_ms >= this.endMs);
    const ends = (closed.length ? closed : known).flatMap((point) => [point.lower, point.upper]).concat(truth ?? []);
    const reach = 1.12 * Math.max(...ends.map((end) => Math.abs(end - middle)));
    return [middle - reach, middle + reach];
  }

  options(colour, quantity) {
    const ink = cssVariable("--ink");
    return {
      series: [
        {},
        { stroke: colour, width: 2.6, paths: stepped, points: { show: false } },
        { stroke: faded(colour, 0.7), width: 1, paths: stepped, points: { show: false } },
        { stroke: faded(colour, 0.7), width: 1, paths: stepped, points: { show: false } },
        { stroke: ink, width: 2, dash: [2, 4], points: { show: false } },
      ],
      bands: [{ series: [3, 2], fill: faded(colour, 0.26) }],
      axes: axes(1000, axisNumber(quantity)),
      padding: [24, 30, 0, 0],
      scales: { x: { time: true, range: () => this.xRange }, y: { range: () => this.yRange } },
      cursor: { show: false },
      hooks: { drawClear: [(u) => this.rungs(u)] },
    };
  }

  /** A line where each rung opens, with its privacy level. */
  rungs(u) {
    const { ctx } = u;
    const ratio = devicePixelRatio;
    const { left, top, width, height } = u.bbox;
    const at = (ms) => Math.round(u.valToPos(ms / 1000, "x", true));
    ctx.save();
    ctx.fillStyle = cssVariable("--shade");
    ctx.fillRect(left, top, Math.max(0, Math.min(at(this.endMs), left + width) - left), height);
    ctx.font = font(11.5).replace(/^\d+/, (size) => String(Number(size) * ratio));
    ctx.textBaseline = "bottom";
    ctx.textAlign = "left";
    let free = -Infinity;
    this.openings.forEach((ms, rung) => {
      const x = at(ms);
      if (x < left - 1 || x > left + width) return;
      ctx.strokeStyle = cssVariable("--line-strong");
      ctx.lineWidth = ratio;
      ctx.setLineDash([2 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(x, top);
      ctx.lineTo(x, top + height);
      ctx.stroke();
      const text = `rung ${rung} · ε ${epsilonText(this.epsilons[rung])}`;
      const long = ctx.measureText(text).width;
      const place = Math.min(x, left + width - long);
      if (place > free) {
        ctx.fillStyle = cssVariable("--muted");
        ctx.fillText(text, place, top - 5 * ratio);
        free = place + long + 10 * ratio;
      }
    });
    ctx.restore();
  }
}

export class UsersChart extends Chart {
  constructor(container, { hovered }) {
    super(container);
    this.hovered = hovered;
  }

  update({ windows, rungs, stepMs, dark }) {
    // Each series holds the users of its rung and of all higher ones, so that later, shorter bars cover earlier ones:
    // the highest rung is at the bottom.
    const data = [windows.map((window) => window.window_start_ms / 1000)];
    for (let rung = 0; rung < rungs; rung += 1) {
      data.push(windows.map((window) => window.users_per_rung.slice(rung).reduce((sum, users) => sum + users, 0)));
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
        x: { time: true, range: (_u, min, max) => [min - half, max + half] },
        y: { range: () => [0, 1.06 * this.most] },
      },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
      hooks: {
        drawClear: [(u) => shadeOpen(u, this.open, half, font(11.5))],
        setCursor: [(u) => this.hovered(u.cursor.idx == null || u.cursor.left < 0 ? null : this.starts[u.cursor.idx])],
      },
    };
  }
}

