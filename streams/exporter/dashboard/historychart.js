// One window's history: estimate and band of one value while the rungs open.

import uPlot from "./vendor/uplot/uPlot.esm.js";
import { Chart, axes, canvasFont } from "./charts.js";
import { cssVariable } from "./dom.js";
import { axisNumber, epsilonText } from "./format.js";
import { faded } from "./palette.js";

const stepped = uPlot.paths.stepped({ align: 1 });

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
      axes: axes(1000, axisNumber(quantity), quantity.unit),
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
    ctx.font = canvasFont(11.5);
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
