// Exact numbers: doubles as rational numbers, units of the budget, logarithms of large ratios.

const UNITS = 1_000_000_000_000n;

/** A finite double as numerator and denominator. @param {number} number @returns {[bigint, bigint]} */
export function rational(number) {
  if (!Number.isFinite(number)) throw new RangeError(`${number} is no finite number`);
  let denominator = 1n;
  let rest = number;
  while (!Number.isInteger(rest)) {
    rest *= 2; // exact: only the exponent changes
    denominator *= 2n;
  }
  return [BigInt(rest), denominator];
}

/** What an epsilon costs, in units of 10^-12, rounded up. @param {number} epsilon */
export function costUnits(epsilon) {
  const [numerator, denominator] = rational(epsilon);
  return (numerator * UNITS + denominator - 1n) / denominator;
}

/** What a bound allows, rounded down; null if it is unlimited. @param {number | null} epsilon */
export function limitUnits(epsilon) {
  if (epsilon === null || epsilon === Infinity) return null;
  const [numerator, denominator] = rational(epsilon);
  return (numerator * UNITS) / denominator;
}

/** Units as an epsilon, for people. @param {bigint} units */
export const asEpsilon = (units) => Number(units) / Number(UNITS);

/** ln(numerator / denominator) of positive integers, with a relative error of about 10^-15. @param {bigint} numerator @param {bigint} denominator */
export function logRatio(numerator, denominator) {
  if (denominator === 0n) return numerator === 0n ? 0 : Infinity;
  if (numerator === denominator) return 0;
  // ln(1 + x) keeps its digits where the ratio is close to 1.
  return Math.log1p(Number(((numerator - denominator) << 80n) / denominator) / 2 ** 80);
}
