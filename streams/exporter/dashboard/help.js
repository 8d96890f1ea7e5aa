// Help on terms: a button on the word opens its meaning, taken from the glossary; the button "?" lists all of them.

import { h, setText } from "./dom.js";
import { TERMS } from "./terms.js";

const meanings = new Map(TERMS.flatMap(({ word, meaning }) => [[word, meaning], ...word.split(", ").map((one) => [one, meaning])]));
let panel = null;

function makePanel() {
  const title = h("strong", { id: "term-title" });
  const text = h("p", { id: "term-text" });
  const node = h("div", { id: "term-help", class: "card term-help", popover: "auto", tabindex: -1, autofocus: true, role: "dialog", "aria-labelledby": "term-title", "aria-describedby": "term-text" }, title, text);
  document.body.append(node);
  return { node, title, text };
}

function place(button) {
  const { left, bottom, top } = button.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = panel.node;
  const below = bottom + 8 + height <= innerHeight;
  panel.node.style.left = `${Math.max(8, Math.min(left, innerWidth - width - 8))}px`;
  panel.node.style.top = `${Math.max(8, below ? bottom + 8 : top - height - 8)}px`;
}

/** A word with its meaning behind it; `text` is how it stands in the sentence. */
export function term(word, text = word) {
  const meaning = meanings.get(word);
  if (meaning === undefined) throw new Error(`${word} is not in the glossary`);
  panel ??= makePanel();
  const button = h("button", { type: "button", class: "term", popovertarget: "term-help", title: "What is this?" }, text);
  button.addEventListener("click", () => {
    // The browser opens the panel after this; then its size is known.
    setText(panel.title, word);
    setText(panel.text, meaning);
    panel.node.addEventListener("toggle", (event) => event.newState === "open" && place(button), { once: true });
  });
  return button;
}

const HANDS = [
  ["Click a window", "All panels show it, until you press follow."],
  ["Drag over the chart", "Zoom into these times. A double click returns to the newest windows."],
  ["Click a value", "Highlight it in all panels."],
  ["Back button, links", "Everything that is shown is in the address; Permalink fixes the times too."],
];

/** The button that opens the whole list in a dialog. */
export function startHelp(button, dialog) {
  const list = (pairs) => h("dl", {}, pairs.flatMap(([word, meaning]) => [h("dt", {}, word), h("dd", {}, meaning)]));
  button.addEventListener("click", () => {
    if (!dialog.firstElementChild) {
      dialog.append(
        h("form", { method: "dialog", class: "dialog-head" }, h("h2", {}, "Help"), h("button", { class: "small-button" }, "Close")),
        h("h3", {}, "How to use the page"), list(HANDS), h("h3", {}, "Terms"), list(TERMS.map(({ word, meaning }) => [word, meaning])));
    }
    dialog.showModal();
  });
  // A click beside the dialog closes it.
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
}
