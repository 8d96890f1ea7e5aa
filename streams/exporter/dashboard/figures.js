// A figure: title, chart, sentence, numbers as a table, and buttons that save both as files.

import { h, setAttribute, setText } from "./dom.js";
import { saveCsv, savePng } from "./export.js";
import { unbroken } from "./format.js";

/** A table of cells; `head` are its column titles. */
export function table(head, rows) {
  return h("table", {}, h("thead", {}, h("tr", {}, head.map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((text) => h("td", {}, String(text)))))));
}

export function saveButton(kind, what, save) {
  return h("button", { type: "button", class: "save-button", "aria-label": `Save ${what} as ${kind}`, title: `Save as ${kind}`, on: { click: save } }, kind);
}

export class Figure {
  /** title: text or nodes; exported(): {name, head, rows} for CSV, {name, title, canvas, text} for PNG. */
  constructor(title, name, { exported, pictured, extra = null, opened }) {
    this.title = h("h3", {}, title);
    this.what = name;
    this.body = h("div", { class: `plot plot-${name}`, role: "img" });
    this.caption = h("figcaption", { class: "sentence" });
    this.numbers = h("div", { class: "numbers-body" });
    this.details = h("details", { class: "numbers" }, h("summary", {}, "Numbers"), this.numbers);
    this.details.addEventListener("toggle", opened);
    const saves = h("div", { class: "saves" },
      saveButton("CSV", name, () => saveCsv(exported())),
      saveButton("PNG", name, () => savePng({ ...pictured(), title: this.title.textContent, canvas: this.body.querySelector("canvas"), text: this.caption.textContent })));
    this.node = h("figure", { class: `card figure figure-${name}`, data: { chart: name } },
      h("div", { class: "figure-head" }, this.title, extra), this.body,
      h("div", { class: "figure-foot" }, this.caption, this.details, saves));
  }

  say(text) {
    setText(this.caption, unbroken(text));
    setAttribute(this.body, "aria-label", text);
  }

  /** Fill the table of numbers if it is open. */
  list(make) {
    if (this.details.open) this.numbers.replaceChildren(table(...make()));
  }
}
