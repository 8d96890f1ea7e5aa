// How windows that are not settled are drawn: on shaded ground with a label, as hollow points, never as a line or band.

import { cssVariable } from "./dom.js";

const LABELS = ["open: not all rungs released yet", "not settled"];

/** Shade the windows at these places of the x axis, half a step to both sides, and label them once. */
export function shadeOpen(u, places, halfStep, font) {
  if (places.length === 0) return;
  const { ctx } = u;
  const ratio = devicePixelRatio;
  const { left, top, width, height } = u.bbox;
  const at = (x) => Math.min(left + width, Math.max(left, u.valToPos(x, "x", true)));
  ctx.save();
  ctx.fillStyle = cssVariable("--open");
  for (const x of places) ctx.fillRect(at(x - halfStep), top, at(x + halfStep) - at(x - halfStep), height);
  const from = at(Math.min(...places) - halfStep);
  const to = at(Math.max(...places) + halfStep);
  ctx.font = font;
  ctx.textBaseline = "bottom";
  ctx.textAlign = "right";
  ctx.fillStyle = cssVariable("--muted");
  const room = to - from;
  const text = LABELS.find((label) => ctx.measureText(label).width <= room) ?? LABELS[1];
  ctx.fillText(text, to, top - 4 * ratio);
  ctx.restore();
}

/** Hollow points at the estimates; the band of the highlighted value as a dotted line, cut at the edge of the chart. */
export function drawOpen(u, windows, values) {
  const { ctx } = u;
  const ratio = devicePixelRatio;
  const { left, top, width, height } = u.bbox;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  ctx.lineWidth = 1.5 * ratio;
  for (const { x, rows } of windows) {
    const across = u.valToPos(x, "x", true);
    values.forEach(({ colour, focused }, i) => {
      const { estimate, lower, upper } = rows[i];
      ctx.strokeStyle = colour;
      ctx.globalAlpha = focused ? 0.9 : 0.5;
      if (focused && lower !== null && upper !== null) {
        ctx.setLineDash([1.5 * ratio, 3 * ratio]);
        ctx.beginPath();
        ctx.moveTo(across, u.valToPos(lower, "y", true));
        ctx.lineTo(across, u.valToPos(upper, "y", true));
        ctx.stroke();
      }
      if (estimate === null) return;
      ctx.setLineDash([]);
      ctx.fillStyle = cssVariable("--card");
      ctx.beginPath();
      ctx.arc(across, u.valToPos(estimate, "y", true), (focused ? 3.5 : 2.5) * ratio, 0, 2 * Math.PI);
      ctx.fill();
      ctx.stroke();
    });
  }
  ctx.restore();
}
