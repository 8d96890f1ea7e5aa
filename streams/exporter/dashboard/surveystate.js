// What the health of the pipeline says about one survey, in words.

import { span } from "./format.js";
import { time } from "./zone.js";

/** One short text about the age of a survey's estimates; entry: of `surveys` in the health, null before it is known. */
export function ageText(entry, now) {
  if (entry === null) return "unknown";
  const { state, last_estimate_ms: last, end_ms: end } = entry;
  const age = last === null || last === undefined ? null : span(now - last);
  if (state === "ended") return `ended ${time(end, 3_600_000)}`;
  if (state === "replaced") return "replaced by a newer version";
  if (state === "stale") return `stale · no new reports for ${age}`;
  if (age === null) return state === "unknown" && entry.down ? "unknown" : "no estimates";
  return `updated ${age} ago`;
}
