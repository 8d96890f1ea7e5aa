// Surveys as a gateway serves them: signatures, ids, windows, schedule.

import { fromBase64, hex, joined, sha256, signedBy, utf8 } from "./bytes.js";
import { SurveyError } from "./errors.js";
import { Mechanism } from "./mechanisms.js";

export { SurveyError };

const CONTEXT = joined(utf8("thaw.survey.v1"), new Uint8Array(1));
const EARLY_MS = 3_600_000;
/** Relative error of this client's own arithmetic of costs. */
const SLACK = 1e-9;

/** JSON with keys in order and no spaces. @param {any} data @returns {string} */
export function canonical(data) {
  if (Array.isArray(data)) return `[${data.map(canonical).join(",")}]`;
  if (data === null || typeof data !== "object") return JSON.stringify(data);
  const byCodePoint = (one, other) => {
    const [a, b] = [utf8(one), utf8(other)];
    const at = a.findIndex((byte, place) => byte !== b[place]);
    return at < 0 ? a.length - b.length : a[at] - (b[at] ?? -1);
  };
  return `{${Object.keys(data).sort(byCodePoint).map((key) => `${JSON.stringify(key)}:${canonical(data[key])}`).join(",")}}`;
}

/** A checked survey. */
export class Survey {
  /** @param {{ id: string, decoding: any, client: any }} document @param {Uint8Array} hash */
  constructor({ id, decoding, client }, hash) {
    this.id = id;
    this.name = decoding.name;
    this.decoding = decoding;
    this.client = client;
    this.hash = hash;
    this.digest = hash.subarray(0, 8);
    this.mechanism = new Mechanism(decoding.mechanism);
    [this.sizeMs, this.stepMs] = decoding.window;
    this.rungs = decoding.rungs;
    this.shards = decoding.shards;
    this.#check();
  }

  /**
   * Check what a gateway serves, without its envelope.
   * @param {{ id: string, decoding: any, client: any }} document
   */
  static async of(document) {
    if (typeof document?.decoding !== "object" || typeof document?.client !== "object") throw new SurveyError("this is no survey of a gateway");
    if (document.decoding.continues !== undefined) throw new SurveyError(`${document.id} is not answered by this client: it continues an earlier survey, whose chains would have to go on`);
    const survey = new Survey(document, await sha256(utf8(canonical(document.decoding))));
    const id = `${document.decoding.name}-${hex(survey.hash.subarray(0, 4))}`;
    if (id !== document.id || document.client.digest !== hex(survey.digest)) throw new SurveyError(`the id must be ${id}; got ${document.id}`);
    return survey;
  }

  /**
   * Open an envelope.
   * @param {{ payload: string, signature: string | null }} envelope
   * @param {{ nowMs: number, key?: string | null }} options key: the public key in base64 that must have signed it; without one unsigned surveys are taken
   */
  static async opened(envelope, { nowMs, key = null }) {
    let document;
    try {
      const payload = fromBase64(envelope.payload);
      if (key !== null) {
        if (!envelope.signature) throw new SurveyError("the survey is not signed, and this client was told a key");
        const good = await signedBy(fromBase64(key), joined(CONTEXT, payload), fromBase64(envelope.signature));
        if (!good) throw new SurveyError("the survey is signed by another key than the one this client was told");
      }
      document = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(payload));
    } catch (error) {
      throw error instanceof SurveyError ? error : new SurveyError(`this is no survey of a gateway: ${error.message}`);
    }
    if (!(document.issued_ms - EARLY_MS <= nowMs && nowMs < document.expires_ms)) {
      throw new SurveyError(`the survey is valid from ${document.issued_ms} to ${document.expires_ms} and it is ${nowMs} here; fetch it again, or set the clock`);
    }
    const survey = await Survey.of(document);
    if (survey.isOver(nowMs)) throw new SurveyError(`the survey ${survey.id} has expired`);
    return survey;
  }

  #check() {
    const { client, decoding, mechanism } = this;
    const refuse = (good, text) => {
      if (!good) throw new SurveyError(`${this.id} is not answered by this client: ${text}`);
    };
    const [kind, size] = decoding.answer;
    const width = kind === "bits" ? Math.ceil(size / 8) : size <= 256 ? 1 : size <= 65_536 ? 2 : 4;
    refuse(client.copies === 1, "it takes several copies of an answer");
    refuse(decoding.standing !== true, "its values stand, and one answer is sent for all windows of a value");
    refuse(client.unlock === null, "its budget unlocks over time");
    refuse((client.stop_width ?? null) === null, "bulletins open its levels");
    refuse(this.rungs < 255 || !this.withdrawable, "no rung is left for withdrawals");
    refuse(client.answer_width === width && mechanism.chain.top.outputs === size, "its answers have another form");
    refuse(client.grouped === decoding.groups > 1, "its groups have another form");
    refuse(mechanism.chain.rungs === this.rungs && client.epsilons.length === this.rungs && client.opens_ms.length === this.rungs, "its rungs differ in number");
    refuse([this.sizeMs, this.stepMs, this.shards].every((number) => Number.isInteger(number) && number > 0) && this.stepMs <= this.sizeMs, "its windows have another form");
    mechanism.epsilons.forEach((own, rung) => {
      const told = client.epsilons[rung] ?? Infinity;
      refuse(own <= told * (1 + SLACK) + 1e-12, `rung ${rung} costs ${own}, and it says ${told}`);
    });
  }

  /** Whether answers can be taken back: reports carry keys then. */
  get withdrawable() {
    return this.decoding.withdrawable === true;
  }

  /** The moment that frames of a rung carry, the same for everybody. @param {number} windowMs @param {number} rung */
  publicMs(windowMs, rung) {
    return rung === 0 || rung >= this.rungs ? windowMs : this.openingMs(windowMs, rung);
  }

  /** Values that a person may choose; of a mean or an open list none. */
  get labels() {
    return this.client.labels;
  }

  /** What all answers up to a rung cost. @param {number} rung */
  epsilon(rung) {
    return this.client.epsilons[rung] ?? Infinity;
  }

  /** Starts of the windows that contain a moment, oldest first. @param {number} nowMs */
  starts(nowMs) {
    const oldest = (Math.floor((nowMs - this.sizeMs) / this.stepMs) + 1) * this.stepMs;
    const count = Math.floor((nowMs - oldest) / this.stepMs) + 1;
    return Array.from({ length: count }, (_, at) => oldest + at * this.stepMs);
  }

  /** When a rung opens; rung 0 opens when the value is taken. @param {number} windowMs @param {number} rung */
  openingMs(windowMs, rung) {
    return windowMs + this.sizeMs + this.client.opens_ms[rung];
  }

  /** The last moment at which an answer for a window counts. @param {number} windowMs */
  expiryMs(windowMs) {
    return Math.min(windowMs + this.sizeMs + this.client.retention_ms, this.client.expires_ms ?? Infinity);
  }

  /** Whether a window is answered now. @param {number} windowMs @param {number} nowMs */
  asks(windowMs, nowMs) {
    return (this.client.end_ms === null || windowMs < this.client.end_ms) && !this.isOver(nowMs);
  }

  /** Whether the survey has expired: nothing is drawn, released or sent any more. @param {number} nowMs */
  isOver(nowMs) {
    return this.client.expires_ms !== null && nowMs >= this.client.expires_ms;
  }
}

