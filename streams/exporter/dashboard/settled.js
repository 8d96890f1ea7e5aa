// Settled and open windows. Headlines, order, sentences and the y axis use settled windows; others are drawn as open.

import { span } from "./format.js";

/** Whether a window has final numbers. One whose survey publishes none yet (too few devices) has no numbers at all. */
export const isSettled = (window) => window.state === "settled" && !window.withheld;

/** The newest settled window of a list that begins with the oldest one; null before a window has settled. */
export const newestSettled = (windows) => windows.findLast(isSettled) ?? null;

/** Which of two answers about one window is the newer one: an old answer to a request may come after an event. */
export function newer(known, other) {
  if (known === undefined || other.computed_ms !== known.computed_ms) return known?.computed_ms > other.computed_ms ? known : other;
  return isSettled(known) ? known : other;
}

/** Why the numbers of a window are not settled; empty for a settled one. */
export function openText(window, now) {
  if (window.withheld) return window.withheld.text;
  if (window.state === "open") return `open for another ${span(window.window_end_ms - now)}`;
  if (window.state === "releasing") return `not all rungs released yet, settles in ${span(window.settles_ms - now)}`;
  return window.state === "waiting" ? "all rungs released, but not counted yet" : "";
}

/** What is said in place of a headline before a window has settled. */
export function waitText(windows, now) {
  const held = windows.at(-1)?.withheld;
  if (held) return `No estimate is published yet: ${held.text}.`;
  const first = windows.find((window) => window.settles_ms > now);
  return first ? `No window is settled yet: first settled window in ${span(first.settles_ms - now)}.`
    : "No window is settled yet: all rungs are released, but the reports are not counted yet.";
}

const WINDOWS_WATCHED = 5;

/** What the homogeneity test says against the survey's assumption about rungs, in the last settled windows; or empty. */
export function contradictionText(windows) {
  const last = windows.filter(isSettled).slice(-WINDOWS_WATCHED);
  const against = last.filter((window) => window.contradicted);
  if (against.length === 0) return "";
  const smallest = Math.min(...against.map((window) => window.homogeneity_p ?? 1));
  const made = against.every((window) => window.method === "stratified") ? "Their estimates are stratified, which assumes nothing about rungs."
    : "Their estimates rely on the assumption: do not use them.";
  return `In ${against.length} of the last ${last.length} settled windows the rungs contradict rungs = "independent" (smallest p ${smallest.toPrecision(2)}): `
    + `the rung of a device depends on its value, or reports are forged. ${made}`;
}
