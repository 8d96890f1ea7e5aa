// What the health of the pipeline says about one survey, in words.

import { count, epsilonText, span } from "./format.js";
import { time } from "./zone.js";

/** What the answers of a canary prove about their epsilon, rung by rung; audit: of `epsilon_audits` in the health. */
export function epsilonSentence(audit) {
  const rungs = audit.rungs.map(({ rung, declared, lower_bound: proven }) => `${proven.toFixed(2)} (declared ${epsilonText(declared)}) at rung ${rung}`);
  const said = `epsilon is at least ${rungs.join(", ")}, from ${count(audit.answers)} answers whose truth is known.`;
  return audit.exceeded ? `${said} This is above the declared level: devices reveal more than was promised.` : said;
}

/** The rung whose bound is highest compared with its declared level, in a few words. */
export function epsilonNote(audit) {
  const over = ({ declared, lower_bound: proven }) => (declared === null ? -Infinity : proven - declared);
  const { declared, lower_bound: proven } = audit.rungs.reduce((worst, next) => (over(next) > over(worst) ? next : worst));
  return `ε ≥ ${proven.toFixed(2)}, declared ${epsilonText(declared)}`;
}

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
