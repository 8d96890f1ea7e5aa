// A canvas with coloured cells and a small text beside the pointer: what the heat map and the map have in common.

import { canvasFont } from "./charts.js";
import { cssVariable, h, setText } from "./dom.js";

export class CellPlot {
  /** picked(cell): a cell was chosen. Cells are what `cellAt` returns, with a `text` for the pointer. */
  constructor(container, { picked }) {
    this.container = container;
    this.canvas = h("canvas", { class: "cells" });
    this.tip = h("div", { class: "tip", "aria-hidden": "true", hidden: true });
    container.append(this.canvas, this.tip);
    this.given = null;
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(container);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", (event) => {
      const cell = this.cellAt(event.offsetX, event.offsetY);
      if (cell) picked(cell);
    });
  }

  destroy() {
    this.observer.disconnect();
  }

  update(given) {
    this.given = given;
    this.draw();
  }

  /** Prepare the canvas for a height in pixels; returns its context and width, or null while it cannot be seen. */
  begin(height) {
    const width = this.container.clientWidth;
    if (width === 0 || this.given === null) return null;
    const ratio = devicePixelRatio;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.font = canvasFont(11.5).replace(/^[\d.]+/, (pixels) => String(Number(pixels) / ratio));
    context.textBaseline = "middle";
    context.fillStyle = cssVariable("--muted");
    return { context, width };
  }

  point(event) {
    const cell = this.cellAt(event.offsetX, event.offsetY);
    this.tip.hidden = !cell;
    if (!cell) return;
    setText(this.tip, cell.text);
    const right = event.offsetX > this.container.clientWidth / 2;
    this.tip.style.left = right ? "auto" : `${event.offsetX + 14}px`;
    this.tip.style.right = right ? `${this.container.clientWidth - event.offsetX + 14}px` : "auto";
    this.tip.style.top = `${event.offsetY + 10}px`;
  }
}
