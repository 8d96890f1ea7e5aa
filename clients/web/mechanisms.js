// Mechanisms: how a value becomes the input of a chain, an answer bytes, and what it costs.

import { blake2b, wordAt } from "./blake2b.js";
import { little, utf8 } from "./bytes.js";
import { Chain } from "./channels.js";
import { SurveyError } from "./errors.js";
import { below } from "./random.js";

/** @typedef {import("./channels.js").Word} Word */
/** @typedef {{ input: any, group: number }} Encoded */

const PERSON = new Uint8Array(16);
PERSON.set(utf8("thaw bloom"));

/** The bits that a string sets in a cohort. @param {string} text @param {number} cohort @param {number} bits @param {number} hashes */
export function positions(text, cohort, bits, hashes) {
  const digest = blake2b(utf8(text), { size: 8 * hashes, salt: little(cohort, 16), person: PERSON });
  const found = Array.from({ length: hashes }, (_, at) => Number(wordAt(digest, 8 * at) % BigInt(bits)));
  return [...new Set(found)].sort((one, other) => one - other);
}

/** Set bits as packed bytes, bit j in byte j / 8 at position j % 8. @param {boolean[]} bits */
export function packed(bits) {
  const bytes = new Uint8Array(Math.ceil(bits.length / 8));
  bits.forEach((bit, at) => {
    if (bit) bytes[at >> 3] |= 1 << (at & 7);
  });
  return bytes;
}

function placeOf(values, value) {
  const place = values.indexOf(value);
  if (place < 0) throw new TypeError(`the survey does not know the value ${JSON.stringify(value)}; it knows ${values.join(", ")}`);
  return place;
}

/** A double as C prints it with %a. @param {string} text */
export function fromHexFloat(text) {
  const found = /^(-?)0x([0-9a-f]+)(?:\.([0-9a-f]*))?p([+-][0-9]+)$/.exec(text);
  if (found === null) throw new SurveyError(`${text} is no number in hexadecimal form`);
  const [, sign, whole, part = "", exponent] = found;
  const size = Number(BigInt(`0x${whole}${part}`)) * 2 ** (Number(exponent) - 4 * part.length);
  return sign ? -size : size;
}

/** One symbol out of a list. */
class Symbols {
  constructor(decoding) {
    this.values = decoding.values;
    this.order = decoding.values;
  }

  /** Number of inputs that the chain must have. */
  get inputs() {
    return this.values.length;
  }

  epsilons(chain) {
    return chain.channels.map((channel) => channel.epsilon);
  }

  encode(value) {
    return { input: placeOf(this.order, value), group: 0 };
  }

  bytes(answer, width) {
    return little(answer, width);
  }
}

/** Some values are sensitive; answers have them first. */
class Sensitive extends Symbols {
  constructor(decoding) {
    super(decoding);
    const { sensitive } = decoding;
    if (!Array.isArray(sensitive) || !sensitive.every((value) => typeof value === "string")) throw new SurveyError("sensitive values that change are unknown to this client");
    this.order = [...sensitive, ...this.values.filter((value) => !sensitive.includes(value))];
  }
}

/** One bit per value. */
class Unary extends Symbols {
  epsilons(chain) {
    return chain.channels.map((channel) => channel.epsilonOf(1));
  }

  encode(value) {
    const place = placeOf(this.values, value);
    return { input: this.values.map((_, at) => at === place), group: 0 };
  }

  bytes(answer) {
    return packed(answer);
  }
}

/** Any string, hashed to a few bits. */
class Rappor extends Unary {
  constructor(decoding) {
    super(decoding);
    [this.bits, this.hashes, this.cohorts] = [decoding.bits, decoding.hashes, decoding.cohorts];
    // One digest of 64 bytes gives eight positions.
    if (!(this.hashes >= 1 && this.hashes <= 8)) throw new SurveyError(`a string sets 1 to 8 bits; got ${this.hashes}`);
  }

  get inputs() {
    return this.bits;
  }

  epsilons(chain) {
    return chain.channels.map((channel) => channel.epsilonOf(this.hashes));
  }

  encode(value, word) {
    if (typeof value !== "string" || value === "") throw new TypeError("the value must be a string that is not empty");
    const group = Number(below(BigInt(this.cohorts), 1, word)[0]);
    const set = positions(value, group, this.bits, this.hashes);
    return { input: Array.from({ length: this.bits }, (_, at) => set.includes(at)), group };
  }
}

/** A number in a range, rounded once to one of its ends. */
class Mean extends Symbols {
  constructor(decoding) {
    super({ values: [] });
    [this.low, this.high, this.moments] = [fromHexFloat(decoding.low), fromHexFloat(decoding.high), decoding.moments ?? 1];
    if (![1, 2].includes(this.moments) || !(this.low < this.high)) throw new SurveyError("a range that cannot be right");
  }

  get inputs() {
    return 2;
  }

  encode(value, word) {
    if (typeof value !== "number" || !Number.isFinite(value)) throw new TypeError("the value must be a number");
    const group = this.moments > 1 ? Number(below(BigInt(this.moments), 1, word)[0]) : 0;
    const number = Math.min(Math.max(value, this.low), this.high);
    const squares = [this.low * this.low, this.high * this.high];
    const least = this.low <= 0 && this.high >= 0 ? 0 : Math.min(...squares);
    const [low, high] = group === 1 ? [least, Math.max(...squares)] : [this.low, this.high];
    const share = ((group === 1 ? number * number : number) - low) / (high - low);
    const uniform = Number(word() >> 11n) * 2 ** -53;
    return { input: uniform < share ? 1 : 0, group };
  }
}

const KNOWN = {
  grr: Symbols, warner: Symbols, simmons: Symbols, ewrr: Symbols, rr3_dagger: Symbols, rr3_ddagger: Symbols, rr3_club: Symbols,
  urr: Sensitive, mangat: Sensitive, sue: Unary, oue: Unary, rappor: Rappor, mean: Mean,
};

/** The mechanism of a survey: draws whole chains. */
export class Mechanism {
  /** @param {any} decoding `decoding.mechanism` of a survey */
  constructor(decoding) {
    const known = KNOWN[decoding?.mechanism];
    if (known === undefined) throw new SurveyError(`the mechanism ${decoding?.mechanism} is unknown to this client`);
    this.name = decoding.mechanism;
    this.chain = new Chain(decoding.chain);
    this.coding = new known(decoding);
    if (this.coding.inputs !== this.chain.top.size) throw new SurveyError(`${this.name} has ${this.coding.inputs} inputs and a channel of ${this.chain.top.size}`);
    this.epsilons = this.coding.epsilons(this.chain);
  }

  /**
   * The answers of all rungs, lowest first, as bytes of frames, and the group.
   * @param {any} value @param {number} width @param {Word} word
   */
  draw(value, width, word) {
    const { input, group } = this.coding.encode(value, word);
    return { answers: this.chain.draw(input, word).map((answer) => this.coding.bytes(answer, width)), group };
  }

  /** Refuse a value that the survey does not know, without drawing anything that counts. @param {any} value */
  check(value) {
    this.coding.encode(value, () => 0n);
  }
}
