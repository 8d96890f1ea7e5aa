// Settled and open windows. Headlines, order, sentences and the y axis use settled windows; others are drawn as open.

import { span } from "./format.js";

export const isSettled = (window) => window.state === "settled";

/** The newest settled window of a list that begins with the oldest one; null before a window has settled. */
export const newestSettled = (windows) => windows.findLast(isSettled) ?? null;

/** Why the numbers of a window are not settled; empty for a settled one. */
export function openText(window, now) {
  if (window.state === "open") return `open for another ${span(window.window_end_ms - now)}`;
  if (window.state === "releasing") return `not all rungs released yet, settles in ${span(window.settles_ms - now)}`;
  return window.state === "waiting" ? "all rungs released, but not counted yet" : "";
}

/** What is said in place of a headline before a window has settled. */
export function waitText(windows, now) {
  const first = windows.find((window) => window.settles_ms > now);
  return first ? `No window is settled yet: first settled window in ${span(first.settles_ms - now)}.`
    : "No window is settled yet: all rungs are released, but the reports are not counted yet.";
}
