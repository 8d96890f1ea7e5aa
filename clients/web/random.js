// Random words: 64 secure bits each. Whatever draws takes a function that returns the next word.

const GRID = 1n << 64n;

/** A word of the system's secure generator. @returns {bigint} */
export function secureWord() {
  const [low, high] = crypto.getRandomValues(new Uint32Array(2));
  return (BigInt(high) << 32n) | BigInt(low);
}

/**
 * Uniform integers in [0, bound), 1 <= bound <= 2^64, without bias.
 * @param {bigint} bound @param {number} count @param {() => bigint} word
 */
export function below(bound, count, word) {
  const words = Array.from({ length: count }, word);
  if ((bound & (bound - 1n)) === 0n) return words.map((drawn) => drawn & (bound - 1n));
  const limit = (GRID / bound) * bound;
  let rejected = words.map((_, at) => at).filter((at) => words[at] >= limit);
  while (rejected.length > 0) {
    for (const at of rejected) words[at] = word();
    rejected = rejected.filter((at) => words[at] >= limit);
  }
  return words.map((drawn) => drawn % bound);
}

/** The places of a list in random order. @template T @param {T[]} list @returns {T[]} */
export function shuffled(list) {
  const mixed = [...list];
  for (let at = mixed.length - 1; at > 0; at -= 1) {
    const other = Number(below(BigInt(at + 1), 1, secureWord)[0]);
    [mixed[at], mixed[other]] = [mixed[other], mixed[at]];
  }
  return mixed;
}
