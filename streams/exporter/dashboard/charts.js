// What the charts have in common, on uPlot. A chart is created once and then gets new data, so that updates do not flicker;
// it is created again when its series, the theme or the time zone change.

import uPlot from "./vendor/uplot/uPlot.esm.js";
import { cssVariable } from "./dom.js";
import { chosenZone, clockTime, time, zoneName } from "./zone.js";

const NARROW = 560;
const [MINUTE, HOUR, DAY] = [60, 3_600, 86_400];
/** Seconds between ticks of an axis of times. uPlot's own have no 2 and no 20: it leaves one tick alone on six minutes. */
const TIME_STEPS = [
  ...[1, 2, 5, 10, 20, 30],
  ...[1, 2, 5, 10, 20, 30].map((count) => count * MINUTE),
  ...[1, 2, 3, 4, 6, 8, 12].map((count) => count * HOUR),
  ...[1, 2, 3, 5, 10, 15].map((count) => count * DAY),
  ...[30, 60, 90, 120, 180, 365, 730].map((count) => count * DAY),
];

export function font(size = 12) {
  const scale = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
  return `${Math.round(size * scale)}px ${cssVariable("--font")}`;
}

/** The same font in the pixels of the canvas. */
export const canvasFont = (size) => font(size).replace(/^\d+/, (pixels) => String(Number(pixels) * devicePixelRatio));

/** Times along the x axis, with the day where the axis spans more than one. */
function timeTexts(u, splits, stepMs) {
  const { min, max } = u.scales.x;
  const short = stepMs < 3_600_000 && max - min < DAY;
  return splits.map((seconds) => (short ? clockTime(seconds * 1000) : time(seconds * 1000, stepMs, 0)));
}

export function axes(stepMs, valueText, unit = "") {
  const stroke = cssVariable("--muted");
  const grid = { stroke: cssVariable("--grid"), width: 1 };
  const scale = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
  return [
    {
      stroke, grid: { show: false }, ticks: { show: false }, font: font(), gap: 6, size: 30 * scale, space: 90 * scale, incrs: TIME_STEPS,
      values: (u, splits) => timeTexts(u, splits, stepMs),
    },
    {
      stroke, grid, ticks: { show: false }, font: font(), gap: 6, size: 52 * scale, space: 38 * scale,
      ...(unit ? { label: unit, labelSize: 18 * scale, labelFont: font(11.5), labelGap: 0 } : {}),
      values: (_u, splits) => splits.map(valueText),
    },
  ];
}

/** Options for the x axis: its ticks stand at whole hours and days of the chosen zone. */
export const inZone = () => ({ tzDate: (seconds) => (chosenZone() === "utc" ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000)) });

export class Chart {
  constructor(container) {
    this.container = container;
    this.plot = null;
    this.shape = "";
    this.observer = new ResizeObserver(() => {
      if (!this.plot || container.clientWidth === 0) return;
      if ((container.clientWidth < NARROW) !== this.narrow) this.shape = "";
      this.plot.setSize({ width: container.clientWidth, height: container.clientHeight });
    });
    this.observer.observe(container);
  }

  destroy() {
    this.observer.disconnect();
    this.plot?.destroy();
    this.plot = null;
    this.shape = "";
  }

  /** Set the data; `options()` is called only for a new shape. */
  feed(shape, data, options) {
    const { clientWidth: width, clientHeight: height } = this.container;
    if (width === 0) return;
    const full = `${shape}|${width < NARROW}|${zoneName()}`;
    if (this.plot && this.shape === full) {
      this.plot.setData(data);
      return;
    }
    this.plot?.destroy();
    this.narrow = width < NARROW;
    this.shape = full;
    this.plot = new uPlot({ width, height, legend: { show: false }, ...inZone(), ...options() }, data, this.container);
  }
}

export const invisible = () => ({ stroke: "transparent", width: 0, points: { show: false } });

/** A dashed line at the window that all panels show. */
export function markWindow(u, start) {
  const { min, max } = u.scales.x;
  if (start === null || start === undefined || start / 1000 < min || start / 1000 > max) return;
  const x = Math.round(u.valToPos(start / 1000, "x", true));
  const { ctx } = u;
  ctx.save();
  ctx.strokeStyle = cssVariable("--ink");
  ctx.globalAlpha = 0.55;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(x, u.bbox.top);
  ctx.lineTo(x, u.bbox.top + u.bbox.height);
  ctx.stroke();
  ctx.restore();
}

/** The x axis of windows: from the first to the last and half a step more. uPlot gives years to a single one. */
export function timeRange(moments, half, before = moments.length > 1 ? 0 : 2 * half) {
  return moments.length === 0 ? [null, null] : [moments[0] - before, moments[moments.length - 1] + half];
}
