// The time zone of all times on the page: that of this browser, or UTC. The choice is in the address and in this browser.

import { setAttribute, setText } from "./dom.js";
import { followState, go, state } from "./state.js";

const KEY = "thaw-zone";
const LOCAL = Intl.DateTimeFormat().resolvedOptions().timeZone || "local";
const formats = new Map();

/** The chosen zone: "utc" or "local". */
export function chosenZone() {
  const zone = state.tz ?? localStorage.getItem(KEY);
  return zone === "utc" ? "utc" : "local";
}

export const zoneName = () => (chosenZone() === "utc" ? "UTC" : LOCAL);

/** A format of dates in the chosen zone; made once per zone and set of fields. */
function format(fields) {
  const zone = chosenZone() === "utc" ? "UTC" : undefined;
  const key = `${zone} ${fields}`;
  if (!formats.has(key)) {
    const parts = {
      clock: { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" },
      minute: { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" },
      second: { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" },
      date: { year: "numeric", month: "2-digit", day: "2-digit" },
      offset: { timeZoneName: "longOffset" },
    }[fields];
    formats.set(key, new Intl.DateTimeFormat(fields === "date" ? "en-CA" : undefined, { ...parts, timeZone: zone }));
  }
  return formats.get(key);
}

/** The day of a moment, as 2013-01-31. */
export const dayOf = (ms) => format("date").format(new Date(ms));

/** The time of day; with the day where hours are the finest step, or if it is another day than `today`. */
export function time(ms, stepMs = 1000, today = Date.now()) {
  const moment = new Date(ms);
  if (stepMs >= 3_600_000) return format("minute").format(moment);
  return format(dayOf(ms) === dayOf(today) ? "clock" : "second").format(moment);
}

/** The time of day alone, for axes whose span is less than a day. */
export const clockTime = (ms) => format("clock").format(new Date(ms));

/** Minutes by which the chosen zone is ahead of UTC at a moment. */
export function offsetMinutes(ms) {
  const part = format("offset").formatToParts(new Date(ms)).find(({ type }) => type === "timeZoneName")?.value ?? "";
  const match = /([+−-])(\d{2}):(\d{2})/.exec(part);
  return match ? (match[1] === "+" ? 1 : -1) * (60 * Number(match[2]) + Number(match[3])) : 0;
}

/** A moment as the text of an <input type="datetime-local">, and back. */
export const inputTime = (ms) => new Date(ms + 60_000 * offsetMinutes(ms)).toISOString().slice(0, 19);

export function readInputTime(text) {
  const ms = Date.parse(`${text}Z`);
  if (!Number.isFinite(ms)) return null;
  const first = ms - 60_000 * offsetMinutes(ms);
  return ms - 60_000 * offsetMinutes(first);
}

/** The button at the top: shows the zone, and switches. */
export function startZone(button, changed) {
  const show = () => {
    // The city is enough on a button: "Berlin" of "Europe/Berlin".
    setText(button, zoneName().split("/").at(-1).replaceAll("_", " "));
    setAttribute(button, "title", `Time zone of all times: ${zoneName()}`);
    setAttribute(button, "aria-label", `Time zone: ${zoneName()}. Switch to ${chosenZone() === "utc" ? LOCAL : "UTC"}`);
    setAttribute(button, "data-zone", chosenZone());
  };
  button.addEventListener("click", () => {
    const zone = chosenZone() === "utc" ? "local" : "utc";
    localStorage.setItem(KEY, zone);
    go({ tz: zone });
  });
  followState(() => {
    show();
    changed();
  });
  show();
}
