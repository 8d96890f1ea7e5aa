// The cells of a grid survey as a map, north at the top: dark where the lower end of a cell's band is high.

import { CellPlot } from "./canvasplot.js";
import { cssVariable } from "./dom.js";
import { band, number, halfWidth } from "./format.js";
import { shareColour } from "./palette.js";

const MARGIN = 22;
const HIGHEST = 560;

export class MapChart extends CellPlot {
  /** given: {grid, values: the window's values, quantity, focus, dark}. */
  draw() {
    const { grid, values, focus, dark } = this.given ?? {};
    if (!grid) return;
    const { rows, columns } = grid;
    const ratio = this.aspect(grid);
    const room = this.container.clientWidth - 2 * MARGIN;
    this.width = Math.min(room / columns, (HIGHEST / rows) / ratio);
    this.height = this.width * ratio;
    const begun = this.begin(this.height * rows + 2 * MARGIN);
    if (begun === null) return;
    const { context } = begun;
    this.left = MARGIN + (room - this.width * columns) / 2;
    const highest = Math.max(1e-9, ...values.map(({ lower }) => lower ?? 0));
    grid.cells.forEach((index, place) => {
      const [x, y] = this.corner(place);
      const { lower } = values[index];
      context.fillStyle = lower === null ? cssVariable("--grid") : shareColour(lower / highest, dark);
      context.fillRect(x + 0.5, y + 0.5, this.width - 1, this.height - 1);
      if (index !== focus) return;
      context.strokeStyle = cssVariable("--ink");
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, this.width - 2, this.height - 2);
    });
    this.drawEdges(context, grid);
  }

  /** Height of a cell divided by its width, as it lies on the ground where the numbers are degrees. */
  aspect({ south, north, west, east, rows, columns, degrees }) {
    const flat = degrees ? Math.cos((Math.PI / 360) * (south + north)) : 1;
    return ((north - south) / rows) / (((east - west) / columns) * Math.max(flat, 0.05));
  }

  corner(place) {
    const { columns } = this.given.grid;
    return [this.left + (place % columns) * this.width, MARGIN + Math.floor(place / columns) * this.height];
  }

  drawEdges(context, { south, north, west, east, rows, columns }) {
    const [right, bottom] = [this.left + columns * this.width, MARGIN + rows * this.height];
    context.fillStyle = cssVariable("--muted");
    context.textAlign = "left";
    context.fillText(`${north}, ${west}`, this.left, MARGIN / 2);
    context.textAlign = "right";
    context.fillText(`${south}, ${east}`, right, bottom + MARGIN / 2);
  }

  cellAt(x, y) {
    const { grid, values, quantity, names } = this.given ?? {};
    if (!grid) return null;
    const [column, row] = [Math.floor((x - this.left) / this.width), Math.floor((y - MARGIN) / this.height)];
    if (column < 0 || row < 0 || column >= grid.columns || row >= grid.rows) return null;
    const index = grid.cells[row * grid.columns + column];
    const cell = values[index];
    const place = [grid.north - ((row + 0.5) * (grid.north - grid.south)) / grid.rows, grid.west + ((column + 0.5) * (grid.east - grid.west)) / grid.columns];
    return { index, text: `${names[index]}, around ${place.map((end) => end.toFixed(4)).join(", ")}\n${number(cell.estimate, quantity, halfWidth(cell) ?? 0.01)}  (${band(cell, quantity)})` };
  }
}
