// Dark or light: the system's setting until the button is pressed; the choice is stored in this browser.

import { setAttribute } from "./dom.js";

const KEY = "thaw-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : system.matches;
}

export function startTheme(button, changed) {
  const asked = new URLSearchParams(location.search).get("theme");
  const stored = localStorage.getItem(KEY);
  const chosen = asked === "dark" || asked === "light" ? asked : stored;
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  const show = () => {
    setAttribute(button, "data-dark", isDark());
    setAttribute(button, "aria-pressed", isDark());
    changed();
  };
  button.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    localStorage.setItem(KEY, theme);
    show();
  });
  system.addEventListener("change", show);
  show();
}
