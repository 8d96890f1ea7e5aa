// Everything that has no row of its own, as one number.

/** Whether shares of several values may be added up. */
export const addsUp = (info) => info.adds_up ?? false;

/**
 * The estimates of all values but `shown` together. They have no band: which values these are was chosen by the
 * estimates themselves, the smallest of many noisy numbers, and no band of a sum holds after such a choice.
 */
export function othersOf(window, shown) {
  const rest = window.values.filter((_, index) => !shown.has(index));
  if (rest.length === 0 || rest.some(({ estimate }) => estimate === null)) return null;
  const estimate = rest.reduce((sum, row) => sum + row.estimate, 0);
  const truths = window.truth?.shares ?? null;
  const truth = truths === null ? null : truths.reduce((sum, share, index) => sum + (shown.has(index) ? 0 : share ?? NaN), 0);
  return { count: rest.length, estimate, lower: null, upper: null, truth: Number.isFinite(truth) ? truth : null };
}
