// Files of what is seen: numbers as CSV, charts as PNG. Both are made in the browser.

import { cssVariable } from "./dom.js";
import { isoTime } from "./state.js";
import { zoneName } from "./zone.js";

/** One cell. Text that a spreadsheet would take for a formula gets an apostrophe. */
function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function csv(head, rows) {
  return [head, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A file name of the survey, the part of the page and the time, without characters that a file system refuses. */
const fileName = (name, kind) => `${name.replaceAll(/[^\w.-]+/g, "-")}-${isoTime(Date.now()).replaceAll(":", "").slice(0, 17)}.${kind}`;

export function saveCsv({ name, head, rows }) {
  save(new Blob(["\ufeff", csv(head, rows)], { type: "text/csv;charset=utf-8" }), fileName(name, "csv"));
}

/** Break a text into lines that are at most `width` wide. */
function lines(ctx, text, width) {
  const found = [""];
  for (const word of text.split(" ")) {
    const longer = found.at(-1) ? `${found.at(-1)} ${word}` : word;
    if (ctx.measureText(longer).width <= width || !found.at(-1)) found[found.length - 1] = longer;
    else found.push(word);
  }
  return found;
}

/** A picture of a chart with its question, title and sentence, in the colours of the page. */
export function drawPicture({ question, title, canvas, text }) {
  const ratio = devicePixelRatio;
  const edge = 20 * ratio;
  const picture = document.createElement("canvas");
  const ctx = picture.getContext("2d");
  const styles = [
    { text: question, font: `600 ${17 * ratio}px ${cssVariable("--font")}`, colour: "--ink", step: 23 * ratio },
    { text: title, font: `${14 * ratio}px ${cssVariable("--font")}`, colour: "--muted", step: 22 * ratio },
    { text, font: `${13 * ratio}px ${cssVariable("--font")}`, colour: "--ink", step: 19 * ratio },
    { text: `Times in ${zoneName()}. Saved ${isoTime(Date.now()).slice(0, 19)}Z.`, font: `${11.5 * ratio}px ${cssVariable("--font")}`, colour: "--muted", step: 18 * ratio },
  ].map((style) => {
    ctx.font = style.font;
    return { ...style, lines: lines(ctx, style.text, canvas.width) };
  });
  const tall = (parts) => parts.reduce((sum, part) => sum + part.step * part.lines.length, 0);
  picture.width = canvas.width + 2 * edge;
  picture.height = canvas.height + 2 * edge + tall(styles) + 16 * ratio;
  ctx.fillStyle = cssVariable("--card");
  ctx.fillRect(0, 0, picture.width, picture.height);
  ctx.textBaseline = "top";
  let y = edge;
  const write = (parts) => {
    for (const part of parts) {
      ctx.font = part.font;
      ctx.fillStyle = cssVariable(part.colour);
      for (const line of part.lines) {
        ctx.fillText(line, edge, y);
        y += part.step;
      }
    }
  };
  write(styles.slice(0, 2));
  ctx.drawImage(canvas, edge, y + 6 * ratio);
  y += canvas.height + 12 * ratio;
  write(styles.slice(2));
  return picture;
}

export function savePng({ name, ...shown }) {
  if (shown.canvas === null) return;
  drawPicture(shown).toBlob((blob) => blob && save(blob, fileName(name, "png")), "image/png");
}
