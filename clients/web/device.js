// A device: turns values into chains, keeps them in its ledger, releases and sends what is due. The rules are those of docs/spec.

import { base64, fromBase64, fromHex, hex } from "./bytes.js";
import { BudgetError, NotConfirmedError, TooLargeError, ValueFixedError } from "./errors.js";
import { asEpsilon, costUnits, limitUnits } from "./exact.js";
import { frameOf, namesOf } from "./frames.js";
import { RefusedError } from "./gateway.js";
import { accountOf, closeWindow, newSecret } from "./ledger.js";
import { below, secureWord, shuffled } from "./random.js";
import { canonical } from "./survey.js";

/** @typedef {import("./ledger.js").State} State */
/** @typedef {import("./ledger.js").Chain} Chain */
/** @typedef {import("./survey.js").Survey} Survey */

/** What a device spends at most in its life, over all surveys, if its person sets no other bound. */
export const PERSON_LIFETIME_EPSILON = 100;
const BACKOFF_FIRST_MS = 1_000;
const BACKOFF_LAST_MS = 60_000;
const REQUEST_BYTES = 1 << 20;

/** One device. */
export class Device {
  /**
   * @param {import("./ledger.js").Store} store its ledger
   * @param {Survey[]} surveys that it answers
   * @param {{ send(frames: Uint8Array[]): Promise<void> }} transport such as a Gateway
   * @param {{ caps?: Record<string, number>, lifetimeEpsilon?: number, clock?: () => number }} wishes caps: per survey name the highest
   *   epsilon that the person allows per window; lifetimeEpsilon: their bound on everything, Infinity for none
   */
  constructor(store, surveys, transport, { caps = {}, lifetimeEpsilon = PERSON_LIFETIME_EPSILON, clock = Date.now } = {}) {
    this.store = store;
    this.surveys = new Map(surveys.map((survey) => [survey.id, survey]));
    this.transport = transport;
    this.caps = caps;
    this.lifetimeEpsilon = lifetimeEpsilon;
    this.clock = clock;
    /** Refusals since the device was made, by reason: what a survey of clients may be asked about. */
    this.refusals = new Map();
    this.values = new Map();
    this.backoffMs = 0;
    this.retryMs = null;
    this.requestBytes = REQUEST_BYTES;
  }

  /**
   * Answer a survey for the windows that contain this moment. The first value of a window stands.
   * @param {Survey} survey @param {any} value @param {number} nowMs
   * @returns {Promise<Chain[]>} the chains, oldest window first; none without consent, or where the person's cap keeps this device out
   * @throws {BudgetError | ValueFixedError | TypeError} nothing was drawn
   */
  async observe(survey, value, nowMs = this.clock()) {
    survey.mechanism.check(value);
    if (survey.client.rungs_assumed === "independent" && survey.epsilon(survey.rungs - 1) > this.#cap(survey)) return [];
    const { secret } = await this.store.read();
    const open = survey.starts(nowMs).filter((start) => survey.asks(start, nowMs));
    const named = await Promise.all(open.map(async (start) => [start, await namesOf(fromBase64(secret), survey, start)]));
    const found = await this.store.update((state) => (state.secret === secret ? this.#observed(state, survey, named, value, nowMs) : null));
    // Another tab has switched the device off and on meanwhile.
    if (found === null) return this.observe(survey, value, nowMs);
    const plain = canonical(value);
    const place = ({ windowMs }) => `${survey.id} ${windowMs}`;
    for (const { chain, fresh } of found) if (fresh) this.values.set(place(chain), plain);
    if (found.length > 0 && found.every(({ chain }) => chain.withdrawn)) throw new ValueFixedError(`${survey.id}: the answer for this window was taken back; wait for the next window`);
    if (found.length > 0 && found.every(({ chain }) => (this.values.get(place(chain)) ?? plain) !== plain)) {
      throw new ValueFixedError(`${survey.id}: this window has a chain for another value; the value of a chain is fixed; wait for the next window`);
    }
    return found.map(({ chain }) => chain);
  }

  #observed(state, survey, named, value, nowMs) {
    if (!state.consent) return [];
    const { answeredMs } = accountOf(state, survey.name);
    return named
      .filter(([start]) => answeredMs === null || start > answeredMs)
      .map(([start, names]) => {
        const known = state.chains.find(({ surveyId, windowMs }) => surveyId === survey.id && windowMs === start);
        if (known !== undefined) return { chain: structuredClone(known), fresh: false };
        const chain = this.#drawn(survey, start, names, value, nowMs);
        state.chains.push(chain);
        if (survey.epsilon(0) > this.#cap(survey)) throw new BudgetError(`${survey.id}: the first rung costs ${survey.epsilon(0)} per window and the person allows ${this.#cap(survey)}`);
        this.#release(state, survey, chain, 0, nowMs);
        return { chain: structuredClone(chain), fresh: true };
      });
  }

  #drawn(survey, windowMs, { token, keys }, value, nowMs) {
    const { answers, group } = survey.mechanism.draw(value, survey.client.answer_width, secureWord);
    const delays = below(BigInt(survey.client.jitter_ms + 1), survey.rungs + 1, secureWord).map(Number);
    // Made now, so that it can be sent by a device that no longer knows the survey.
    const nothing = { windowMs, rung: survey.rungs, token, answer: new Uint8Array(survey.client.answer_width), group: 0, key: keys[survey.rungs] };
    return {
      surveyId: survey.id, name: survey.name, windowMs, answers: answers.map(hex), group, delaysMs: delays.slice(0, survey.rungs), token: hex(token),
      keys: keys.map(hex), withdrawal: survey.withdrawable ? base64(frameOf(survey, nothing)) : null, withdrawalDelayMs: delays[survey.rungs],
      drawnMs: nowMs, released: [], withdrawn: false, chargedUnits: "0", expiresMs: survey.expiryMs(windowMs),
    };
  }

  /**
   * Release what has opened, send what is due, erase what counts no longer. Call it regularly; `nextMs` says when.
   * @param {number} nowMs
   * @returns {Promise<{ sent: number, waiting: number, refused: string[] }>} refused: what cannot be paid, or is too large to be sent
   */
  async tick(nowMs = this.clock()) {
    const refused = await this.store.update((state) => this.#ticked(state, nowMs));
    const sent = await this.#flush(nowMs, refused);
    const { outbox } = await this.store.read();
    return { sent, waiting: outbox.length, refused };
  }

  #ticked(state, nowMs) {
    const refused = [];
    if (!state.consent) return refused;
    const over = new Set([...this.surveys.values()].filter((survey) => survey.isOver(nowMs)).map(({ id }) => id));
    state.outbox = state.outbox.filter(({ surveyId }) => !over.has(surveyId));
    for (const chain of state.chains) {
      const survey = this.surveys.get(chain.surveyId);
      if (survey === undefined || over.has(survey.id) || chain.withdrawn || nowMs > chain.expiresMs) continue;
      try {
        this.#releaseOpen(state, survey, chain, nowMs);
      } catch (error) {
        if (!(error instanceof BudgetError)) throw error;
        refused.push(error.message);
      }
    }
    for (const chain of state.chains) if (chain.expiresMs < nowMs) closeWindow(state, chain);
    state.chains = state.chains.filter(({ expiresMs }) => expiresMs >= nowMs);
    return refused;
  }

  /** Release the highest rung that is open and can be paid; lower ones that were never sent are skipped. */
  #releaseOpen(state, survey, chain, nowMs) {
    const highest = Math.max(-1, ...chain.released);
    for (let rung = survey.rungs - 1; rung > highest; rung -= 1) {
      const waits = survey.epsilon(rung) > this.#cap(survey) || (rung > 0 && (survey.client.on_demand || survey.openingMs(chain.windowMs, rung) > nowMs));
      if (waits) continue;
      try {
        this.#release(state, survey, chain, rung, nowMs);
        return;
      } catch (error) {
        if (!(error instanceof BudgetError) || rung === highest + 1) throw error;
      }
    }
  }

  /**
   * Release one level more of a survey whose levels are released on demand, because the person says so.
   * @param {Survey} survey @param {number} nowMs @returns {Promise<Chain | null>} null if nothing is left to release
   */
  releaseNext(survey, nowMs = this.clock()) {
    return this.store.update((state) => {
      const chains = state.chains.filter((chain) => chain.surveyId === survey.id && !chain.withdrawn && nowMs <= chain.expiresMs && Math.max(-1, ...chain.released) < survey.rungs - 1);
      const chain = chains.at(-1);
      if (chain === undefined || !survey.client.on_demand || !state.consent || survey.isOver(nowMs)) return null;
      const rung = Math.max(-1, ...chain.released) + 1;
      if (survey.epsilon(rung) > this.#cap(survey) || (rung > 0 && survey.openingMs(chain.windowMs, rung) > nowMs)) return null;
      this.#release(state, survey, chain, rung, nowMs);
      return structuredClone(chain);
    });
  }

  /** Charge for a rung and put its report into the outbox, as a part of one change of the ledger. */
  #release(state, survey, chain, rung, nowMs) {
    const account = accountOf(state, survey.name);
    // Where rungs must depend on nothing but the schedule, the first answer pays for all.
    const paid = survey.client.rungs_assumed === "independent" ? survey.rungs - 1 : rung;
    const epsilon = survey.epsilon(paid);
    if (epsilon === Infinity) {
      if (limitUnits(survey.client.lifetime_epsilon) !== null || limitUnits(this.lifetimeEpsilon) !== null) throw new BudgetError(`${survey.id}: an answer has no finite cost, and a bound is set`);
      if (chain.released.length === 0) account.unbounded += 1;
    } else {
      const more = costUnits(epsilon) - BigInt(chain.chargedUnits);
      if (more > 0n) {
        this.#checkBudget(state, survey, more);
        chain.chargedUnits = String(costUnits(epsilon));
        state.spentUnits = String(BigInt(state.spentUnits) + more);
        account.spentUnits = String(BigInt(account.spentUnits) + more);
      }
    }
    chain.released.push(rung);
    const key = survey.withdrawable ? fromHex(chain.keys[rung]) : undefined;
    const report = { windowMs: chain.windowMs, rung, token: fromHex(chain.token), answer: fromHex(chain.answers[rung]), group: chain.group, key };
    this.#put(state, chain, { rung, frame: base64(frameOf(survey, report)), delayMs: chain.delaysMs[rung], withdrawal: false }, nowMs);
  }

  /** Put a report into the outbox, as a part of one change of the ledger. */
  #put(state, { surveyId, windowMs, expiresMs }, { rung, frame, delayMs, withdrawal }, nowMs) {
    // From now, not from the opening: a late device must not send the reports of several windows together.
    const readyMs = Math.min(nowMs + delayMs, Math.max(nowMs, expiresMs));
    state.outbox.push({ id: state.nextId, surveyId, windowMs, rung, readyMs, frame, withdrawal });
    state.nextId += 1;
  }

  /**
   * Take back what was answered for a survey: nothing more of it leaves but the withdrawal, which `tick` sends. The windows are not
   * answered again, and what they cost stays spent.
   * @param {Survey} survey @param {{ windowMs?: number | null, nowMs?: number }} which window; all that still count if none is named
   * @returns {Promise<number>} the number of windows
   */
  withdraw(survey, { windowMs = null, nowMs = this.clock() } = {}) {
    if (!survey.withdrawable) throw new TypeError(`answers of ${survey.id} cannot be withdrawn; its file does not say withdrawable = true`);
    return this.store.update((state) => {
      const chosen = state.chains.filter((chain) => chain.surveyId === survey.id && (windowMs === null || chain.windowMs === windowMs));
      return this.#takenBack(state, chosen, nowMs).length;
    });
  }

  /** Withdraw chains that have left, or are about to, and erase them; return those. */
  #takenBack(state, chains, nowMs) {
    const left = chains.filter(({ withdrawal, released, expiresMs }) => withdrawal && released.length > 0 && expiresMs >= nowMs);
    for (const chain of left) {
      state.outbox = state.outbox.filter((report) => report.surveyId !== chain.surveyId || report.windowMs !== chain.windowMs);
      this.#put(state, chain, { rung: chain.answers.length, frame: chain.withdrawal, delayMs: chain.withdrawalDelayMs, withdrawal: true }, nowMs);
      [chain.answers, chain.keys, chain.withdrawal, chain.withdrawn] = [[], [], null, true];
    }
    return left;
  }

  #checkBudget(state, survey, more) {
    for (const [limit, what] of [[survey.client.lifetime_epsilon, "this survey asks nothing beyond"], [this.lifetimeEpsilon, "the person allows"]]) {
      const units = limitUnits(limit);
      const left = units === null ? null : units - BigInt(state.spentUnits);
      if (left !== null && more > left) {
        throw new BudgetError(`${survey.id}: ${asEpsilon(more)} more would be spent, and ${asEpsilon(left > 0n ? left : 0n)} is left of the ${limit} that ${what}; nothing was released`);
      }
    }
  }

  #cap(survey) {
    return this.caps[survey.name] ?? Infinity;
  }

  async #flush(nowMs, told) {
    // The upper bound: a clock that was set back must not stop the device from sending.
    if (this.retryMs !== null && this.retryMs > nowMs && this.retryMs - nowMs <= BACKOFF_LAST_MS) return 0;
    let sent = 0;
    for (;;) {
      const { outbox } = await this.store.read();
      const ready = shuffled(outbox.filter(({ readyMs }) => readyMs <= nowMs));
      const some = fitting(ready, this.requestBytes);
      if (some.length === 0) return sent;
      try {
        await this.transport.send(some.map(({ frame }) => fromBase64(frame)));
      } catch (error) {
        if (error instanceof RefusedError) {
          await this.#setAside(some, error, nowMs);
          continue;
        }
        if (error instanceof TooLargeError) {
          const size = some.reduce((sum, report) => sum + sizeOf(report), 0);
          if (some.length > 1) {
            this.requestBytes = size / 2;
            continue;
          }
          told.push(`${error.message}: a report of ${size} bytes is too large, and waits`);
          await this.store.update((state) => postponeIn(state, ready.filter((report) => sizeOf(report) >= size), nowMs));
          continue;
        }
        if (!(error instanceof NotConfirmedError)) throw error;
        this.backoffMs = Math.min(Math.max(2 * this.backoffMs, BACKOFF_FIRST_MS, error.waitMs), BACKOFF_LAST_MS);
        this.retryMs = nowMs + this.backoffMs;
        return sent;
      }
      [this.backoffMs, this.retryMs] = [0, null];
      const ids = new Set(some.map(({ id }) => id));
      await this.store.update((state) => {
        state.outbox = state.outbox.filter(({ id }) => !ids.has(id));
      });
      sent += some.length;
    }
  }

  /** Delete what will never be taken, and keep what may be taken later. */
  #setAside(some, { refused, postponed }, nowMs) {
    for (const reason of refused.values()) this.refusals.set(reason, (this.refusals.get(reason) ?? 0) + 1);
    const never = new Set([...refused.keys()].map((place) => some[place].id));
    return this.store.update((state) => {
      state.outbox = state.outbox.filter(({ id }) => !never.has(id));
      postponeIn(state, [...postponed].map((place) => some[place]), nowMs);
    });
  }

  /** When `tick` has something to do next, this moment included; null if nothing is foreseen. @param {number} nowMs */
  async nextMs(nowMs = this.clock()) {
    const { chains, outbox } = await this.store.read();
    const ready = outbox.map(({ readyMs }) => Math.max(readyMs, this.retryMs ?? 0, nowMs));
    const openings = chains.flatMap(({ surveyId, windowMs, released, withdrawn }) => {
      const survey = this.surveys.get(surveyId);
      if (survey === undefined || survey.client.on_demand || withdrawn) return [];
      const rungs = Array.from({ length: survey.rungs }, (_, rung) => rung).slice(Math.max(0, ...released) + 1);
      return rungs.map((rung) => survey.openingMs(windowMs, rung));
    });
    // What is open and was not released was refused: an immediate repetition would only spin.
    const moments = [...ready, ...openings.filter((moment) => moment > nowMs)];
    return moments.length > 0 ? Math.min(...moments) : null;
  }

  /**
   * Switch the device on or off. Off: nothing more is drawn or sent but withdrawals of what has left, where the survey allows them, and
   * the ledger keeps only what was spent. On again: it answers windows that start later.
   * @param {boolean} given @param {number} nowMs
   */
  async consent(given, nowMs = this.clock()) {
    await this.store.update((state) => {
      state.consent = given;
      if (given) return;
      this.#takenBack(state, [...state.chains], nowMs);
      state.outbox = state.outbox.filter(({ withdrawal }) => withdrawal);
      for (const chain of state.chains) closeWindow(state, chain);
      [state.chains, state.secret] = [[], newSecret()];
    });
    if (!given) this.values.clear();
  }

  /** All that the ledger holds, for the person. */
  async statement() {
    const { consent, spentUnits, accounts, chains, outbox } = await this.store.read();
    return {
      consent,
      spent: asEpsilon(BigInt(spentUnits)),
      surveys: Object.entries(accounts).map(([name, account]) => ({ name, spent: asEpsilon(BigInt(account.spentUnits)), unbounded: account.unbounded })),
      chains,
      outbox: outbox.map(({ surveyId, windowMs, rung, readyMs, frame }) => ({ surveyId, windowMs, rung, readyMs, frame })),
    };
  }
}

/** Keep reports until later, as a part of one change of the ledger. */
function postponeIn(state, reports, nowMs) {
  const later = new Set(reports.map(({ id }) => id));
  for (const report of state.outbox) if (later.has(report.id)) report.readyMs = nowMs + BACKOFF_LAST_MS;
}

/** Bytes of a report's frame, which is in base64. */
const sizeOf = ({ frame }) => fromBase64(frame).length;

/** As many reports as fit into one request, one at least. */
function fitting(reports, limit) {
  let size = 0;
  return reports.filter((report, at) => {
    size += sizeOf(report);
    return at === 0 || size <= limit;
  });
}
