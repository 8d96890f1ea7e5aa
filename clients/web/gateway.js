// The gateway: surveys in, frames out.

import { joined } from "./bytes.js";
import { NotConfirmedError, SurveyError, TooLargeError } from "./errors.js";
import { Survey } from "./survey.js";

const TYPE = "application/vnd.thaw.frames";
/** The gateway holds reports, at most a minute, and waits for the broker. */
const TIMEOUT_MS = 90_000;
/** Nothing but the request itself: no cookies, no address of the page. */
const QUIET = { credentials: "omit", referrerPolicy: "no-referrer", cache: "no-store" };

/** What became of frames that were not all taken: by their place the reason, and those that may be taken later. */
export class RefusedError extends Error {
  /** @param {string} message @param {Map<number, string>} refused @param {Set<number>} postponed */
  constructor(message, refused, postponed) {
    super(message);
    this.refused = refused;
    this.postponed = postponed;
  }
}

/** A gateway. */
export class Gateway {
  /**
   * @param {string} url such as https://reports.example
   * @param {{ token?: string | null, key?: string | null, fetch?: typeof fetch }} options token: sent as a bearer token; key: the public
   *   key, in base64, that must have signed surveys: told by another way than the gateway
   */
  constructor(url, { token = null, key = null, fetch: ask = (...given) => fetch(...given) } = {}) {
    this.url = url.replace(/\/+$/, "");
    this.key = key;
    this.token = token;
    this.ask = ask;
  }

  /** The surveys that are served: id, name, question, mechanism of each. */
  async index() {
    return (await this.#got("/v1/surveys")).surveys;
  }

  /** A survey, checked. @param {string} id @param {number} nowMs */
  async survey(id, nowMs = Date.now()) {
    return Survey.opened(await this.#got(`/v1/surveys/${encodeURIComponent(id)}`), { nowMs, key: this.key });
  }

  async #got(path) {
    const answer = await this.ask(this.url + path, { ...QUIET, signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (!answer.ok) throw new SurveyError(`the gateway answers ${answer.status} for ${path}`);
    return answer.json();
  }

  /**
   * Send frames in one request; returns when a broker has them.
   * @param {Uint8Array[]} frames
   * @throws {RefusedError} nothing was taken, and some will never be, or only later
   * @throws {TooLargeError} send fewer at once
   * @throws {NotConfirmedError} send the same bytes again
   */
  async send(frames) {
    const headers = { "Content-Type": TYPE, ...(this.token === null ? {} : { Authorization: `Bearer ${this.token}` }) };
    let answer;
    let told;
    try {
      answer = await this.ask(`${this.url}/v1/frames`, { ...QUIET, method: "POST", headers, body: joined(...frames), signal: AbortSignal.timeout(TIMEOUT_MS) });
      // A proxy refuses in words of its own; what confirms must be the gateway's.
      told = await answer.json().catch((error) => {
        if (answer.ok) throw error;
      });
    } catch (error) {
      throw new NotConfirmedError(`no answer from the gateway (${error.message})`);
    }
    if (answer.ok) return;
    const text = `the gateway does not confirm (${told?.error ?? answer.status})`;
    if (answer.status === 413) throw new TooLargeError(text);
    // A place that was not sent is that of no report.
    const places = new Set(frames.keys());
    const named = Array.isArray(told?.frames) ? told.frames.filter((one) => places.has(one?.frame)) : [];
    if (answer.status === 422 && named.length > 0) {
      const never = named.filter(({ again }) => !again).map(({ frame, reason }) => [frame, reason]);
      throw new RefusedError(text, new Map(never), new Set(named.filter(({ again }) => again).map(({ frame }) => frame)));
    }
    const wait = Number(answer.headers.get("Retry-After") ?? 0);
    throw new NotConfirmedError(text, Number.isFinite(wait) ? 1_000 * wait : 0);
  }
}
