// Everything that has no row of its own, as one number.

/** Whether "all others" is a share too, whose error is known. */
export const addsUp = (info) => info.adds_up ?? false;

/**
 * The estimate of all values but `shown` together, with a band that is rather too wide: errors of different values are
 * independent (bits) or against each other (one answer in place of another), so their variances add up at most.
 */
export function othersOf(info, window, shown) {
  const rest = window.values.filter((_, index) => !shown.has(index));
  if (rest.length === 0 || rest.some(({ estimate, variance }) => estimate === null || variance === null)) return null;
  const estimate = rest.reduce((sum, row) => sum + row.estimate, 0);
  const half = info.z * Math.sqrt(rest.reduce((sum, row) => sum + row.variance, 0));
  const truths = window.truth?.shares ?? null;
  const truth = truths === null ? null : truths.reduce((sum, share, index) => sum + (shown.has(index) ? 0 : share ?? NaN), 0);
  return { count: rest.length, estimate, lower: estimate - half, upper: estimate + half, truth: Number.isFinite(truth) ? truth : null };
}
