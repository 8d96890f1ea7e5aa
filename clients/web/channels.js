// Channels and chains: integers over 2^64, compared with random words and never turned into floating point.

import { SurveyError } from "./errors.js";
import { logRatio } from "./exact.js";
import { below } from "./random.js";

const GRID = 1n << 64n;

/** @typedef {() => bigint} Word the next random word */

const integer = (text) => {
  if (typeof text !== "string" || !/^[0-9]{1,40}$/.test(text)) throw new SurveyError(`a threshold must be decimal digits; got ${text}`);
  return BigInt(text);
};

/** Refuse a survey whose numbers cannot be right. @param {boolean} good @param {string} text */
function mustBe(good, text) {
  if (!good) throw new SurveyError(`a channel of this survey cannot be right: ${text}`);
}

const larger = (one, other) => (one[0] * other[1] >= other[0] * one[1] ? one : other);

/** Keep a symbol, or replace it by a uniform draw from the first `pool` symbols. */
class Retention {
  constructor({ size, pool, keep, base }) {
    [this.size, this.pool, this.keep, this.base] = [size, pool, keep, base];
    this.whole = keep + BigInt(pool) * base;
    mustBe(Number.isInteger(size) && Number.isInteger(pool) && size >= 1 && pool >= 0 && pool <= size && this.whole > 0n, "retention");
  }

  static of({ size, pool, keep, base }) {
    const made = new Retention({ size, pool, keep: integer(keep), base: integer(base) });
    mustBe(made.whole <= GRID, "its denominator is above 2^64");
    return made;
  }

  get outputs() {
    return this.size;
  }

  /** @param {number} symbol @param {Word} word */
  sample(symbol, word) {
    if (this.base === 0n) return symbol;
    const [drawn] = below(this.whole, 1, word);
    return drawn < this.keep ? symbol : Number((drawn - this.keep) / this.base);
  }

  then(kernel) {
    mustBe(kernel instanceof Retention && kernel.size === this.size && kernel.pool === this.pool, "a kernel of another form");
    return new Retention({
      size: this.size, pool: this.pool, keep: this.keep * kernel.keep, base: this.base * kernel.whole + this.keep * kernel.base,
    });
  }

  /** What an answer costs whoever has one of the first `pool` symbols. */
  get epsilon() {
    return this.size === 1 || this.pool === 0 || this.keep === 0n ? 0 : logRatio(this.keep + this.base, this.base);
  }
}

/** A small matrix of integers with equal row sums. */
class Dense {
  constructor(rows) {
    this.rows = rows;
    this.size = rows.length;
    const sums = rows.map((row) => row.reduce((sum, entry) => sum + entry, 0n));
    this.whole = sums[0] ?? 0n;
    mustBe(this.whole > 0n && sums.every((sum) => sum === this.whole) && rows.every((row) => row.length === rows[0].length), "rows");
  }

  static of({ rows }) {
    const made = new Dense(rows.map((row) => row.map(integer)));
    mustBe(made.whole <= GRID, "its denominator is above 2^64");
    return made;
  }

  get outputs() {
    return this.rows[0].length;
  }

  sample(symbol, word) {
    let [rest] = below(this.whole, 1, word);
    return this.rows[symbol].findIndex((entry) => {
      rest -= entry;
      return rest < 0n;
    });
  }

  then(kernel) {
    mustBe(kernel instanceof Dense && kernel.rows.length === this.rows[0].length, "a kernel of another form");
    return new Dense(this.rows.map((row) => kernel.rows[0].map((_, to) => row.reduce((sum, entry, at) => sum + entry * kernel.rows[at][to], 0n))));
  }

  get epsilon() {
    const losses = this.rows[0].map((_, at) => {
      const column = this.rows.map((row) => row[at]);
      const [least, most] = [column.reduce((a, b) => (a < b ? a : b)), column.reduce((a, b) => (a > b ? a : b))];
      return most === 0n ? 0 : logRatio(most, least);
    });
    return Math.max(...losses);
  }
}

/** Independent bits, in runs of equal ones. */
class Bits {
  constructor(blocks) {
    this.blocks = blocks;
    mustBe(blocks.length > 0 && blocks.every(({ size, one, zero, whole }) => Number.isInteger(size) && size >= 1 && one <= whole && zero <= whole), "bits");
    this.size = blocks.reduce((sum, block) => sum + block.size, 0);
    this.still = blocks.every(({ one, zero, whole }) => one === whole && zero === 0n);
  }

  static of({ blocks }) {
    const made = new Bits(blocks.map(({ size, one, zero, denominator }) => ({ size, one: integer(one), zero: integer(zero), whole: integer(denominator) })));
    mustBe(made.blocks.every(({ whole }) => whole === GRID), "its denominator is not 2^64");
    return made;
  }

  get outputs() {
    return this.size;
  }

  /** @param {boolean[]} bits @param {Word} word */
  sample(bits, word) {
    if (this.still) return [...bits];
    const thresholds = this.blocks.flatMap(({ size, one, zero }) => Array(size).fill([zero, one]));
    return thresholds.map(([zero, one], at) => word() < (bits[at] ? one : zero));
  }

  then(kernel) {
    mustBe(kernel instanceof Bits && kernel.blocks.length === this.blocks.length, "a kernel of another form");
    return new Bits(this.blocks.map(({ size, one, zero, whole }, at) => {
      const lower = kernel.blocks[at];
      mustBe(lower.size === size, "a kernel of another form");
      return {
        size, one: one * lower.one + (whole - one) * lower.zero, zero: zero * lower.one + (whole - zero) * lower.zero, whole: whole * lower.whole,
      };
    }));
  }

  /** What an answer costs if two inputs differ in at most `ones` set and `ones` cleared bits. @param {number} ones */
  epsilonOf(ones) {
    mustBe(this.blocks.length === 1, "several runs of bits");
    const [{ one, zero, whole }] = this.blocks;
    const rise = larger([one, zero], [whole - one, whole - zero]);
    const fall = larger([zero, one], [whole - zero, whole - one]);
    const power = BigInt(ones);
    return logRatio((rise[0] * fall[0]) ** power, (rise[1] * fall[1]) ** power);
  }
}

const KINDS = { retention: Retention, dense: Dense, bits: Bits };

function channelOf(data) {
  const kind = KINDS[data?.kind];
  if (kind === undefined) throw new SurveyError(`channels of the kind ${data?.kind} are unknown to this client`);
  return kind.of(data);
}

/** A top channel and kernels: kernels[r] takes the answer of rung r + 1 to that of rung r. */
export class Chain {
  /** @param {{ top: any, kernels: any[] }} data */
  constructor({ top, kernels }) {
    this.top = channelOf(top);
    this.kernels = kernels.map(channelOf);
  }

  get rungs() {
    return this.kernels.length + 1;
  }

  /** The exact channel of every rung, lowest first. */
  get channels() {
    const found = [this.top];
    for (const kernel of [...this.kernels].reverse()) found.unshift(found[0].then(kernel));
    return found;
  }

  /** The answers of all rungs for an encoded value, drawn from the top. @param {any} input @param {Word} word */
  draw(input, word) {
    const answers = [this.top.sample(input, word)];
    for (const kernel of [...this.kernels].reverse()) answers.unshift(kernel.sample(answers[0], word));
    return answers;
  }
}
