// Runs the vectors of docs/spec against this client, in Node and in a browser.

import { fromHex, hex } from "../bytes.js";
import { Device } from "../device.js";
import { BudgetError, NotConfirmedError, ValueFixedError } from "../errors.js";
import { costUnits } from "../exact.js";
import { frameOf, keysOf, shardOf, tokenOf } from "../frames.js";
import { positions } from "../mechanisms.js";
import { below } from "../random.js";
import { Survey } from "../survey.js";

/** Words that are given; none may be left, and none may be missing. */
function given(words) {
  const left = words.map((word) => BigInt(`0x${word}`));
  const next = () => {
    if (left.length === 0) throw new Error("more words were drawn than the vector has");
    return left.shift();
  };
  return { next, done: () => left.length === 0 };
}

class Checks {
  constructor() {
    this.passed = 0;
    this.failed = [];
  }

  equal(what, found, expected) {
    const [one, other] = [JSON.stringify(found), JSON.stringify(expected)];
    if (one === other) this.passed += 1;
    else this.failed.push(`${what}: ${one} instead of ${other}`);
  }
}

/** A transport that keeps what is sent, and can be away. */
class Memory {
  constructor() {
    [this.sent, this.away] = [[], false];
  }

  async send(frames) {
    if (this.away) throw new NotConfirmedError("away");
    this.sent.push(...frames);
  }

  /** Window and rung of everything that has left, in order. */
  places() {
    const found = this.sent.map((frame) => [Number(new DataView(frame.buffer, frame.byteOffset).getBigInt64(16, true)), frame[64]]);
    return found.sort((one, other) => one[0] - other[0] || one[1] - other[1]);
  }
}

async function tell(checks, { name, survey: served, caps, person_lifetime_epsilon: lifetimeEpsilon, steps }, newStore) {
  const survey = await Survey.of(served);
  const [store, transport] = [await newStore(), new Memory()];
  const born = () => new Device(store, [survey], transport, { caps, lifetimeEpsilon });
  let device = born();
  const doings = {
    observe: (nowMs, value) => device.observe(survey, value, nowMs),
    tick: (nowMs) => device.tick(nowMs),
    consent: (nowMs, agreed) => device.consent(agreed, nowMs),
    withdraw: (nowMs) => device.withdraw(survey, { nowMs }),
    away: (_, away) => {
      transport.away = away;
    },
    restart: () => {
      device = born();
    },
  };
  for (const [at, step] of steps.entries()) {
    let refused = null;
    try {
      await doings[step.operation](step.now_ms, step.argument);
    } catch (error) {
      if (!(error instanceof BudgetError || error instanceof ValueFixedError)) throw error;
      refused = error instanceof BudgetError ? "budget" : "fixed";
    }
    const { spentUnits, outbox } = await store.read();
    checks.equal(`${name}, step ${at}`, [refused, transport.places(), spentUnits], [step.refused, step.sent, step.spent_units]);
    // What can leave now is due now, or after the pause that a failure brought; nothing that is over is due again.
    const nextMs = await device.nextMs(step.now_ms);
    const waits = outbox.some(({ readyMs }) => readyMs <= step.now_ms);
    checks.equal(`${name}, step ${at}, the next moment`, nextMs === null || nextMs >= step.now_ms, true);
    if (waits && !transport.away && step.operation !== "away") checks.equal(`${name}, step ${at}, is due`, nextMs, step.now_ms);
  }
  store.close();
}

/**
 * @param {any} vectors docs/spec/vectors.json
 * @param {() => Promise<import("../ledger.js").Store>} newStore makes an empty ledger
 */
export async function run(vectors, newStore) {
  const checks = new Checks();
  const surveys = new Map();
  for (const [name, served] of Object.entries(vectors.surveys)) {
    const survey = await Survey.of(served);
    surveys.set(name, survey);
    checks.equal(`survey ${name}`, hex(survey.hash), served.canonical_sha256);
  }
  for (const { bound, count, words, drawn } of vectors.below) {
    const word = given(words);
    checks.equal(`below ${bound}`, [below(BigInt(bound), count, word.next).map(String), word.done()], [drawn, true]);
  }
  for (const { survey, value, words, answers, group, delays_ms: delays } of vectors.draws) {
    const [known, word] = [surveys.get(survey), given(words)];
    const drawn = known.mechanism.draw(value, known.client.answer_width, word.next);
    const later = below(BigInt(known.client.jitter_ms + 1), known.rungs, word.next).map(Number);
    checks.equal(`draw ${survey} ${value}`, [drawn.answers.map(hex), drawn.group, later, word.done()], [answers, group, delays, true]);
  }
  for (const { text, cohort, bits, hashes, positions: set } of vectors.bloom) checks.equal(`bloom ${text}`, positions(text, cohort, bits, hashes), set);
  for (const { epsilon, units } of vectors.costs) checks.equal(`cost ${epsilon}`, String(costUnits(epsilon)), units);
  for (const { size_ms: sizeMs, step_ms: stepMs, now_ms: nowMs, starts } of vectors.windows) {
    checks.equal(`windows ${nowMs}`, Survey.prototype.starts.call({ sizeMs, stepMs }, nowMs), starts);
  }
  for (const { secret, digest, window_ms: windowMs, token, shards, shard } of vectors.tokens) {
    const made = await tokenOf(fromHex(secret), fromHex(digest), windowMs);
    checks.equal(`token ${windowMs}`, [hex(made), shardOf(made, shards)], [token, shard]);
  }
  for (const { secret_key: secretKey, rungs, digest, window_ms: windowMs, token, keys } of vectors.keys) {
    const made = await keysOf(fromHex(secretKey), rungs, fromHex(digest), windowMs);
    checks.equal(`keys ${windowMs}`, [hex(made.token), made.keys.map(hex)], [token, keys]);
  }
  for (const { survey, window_ms: windowMs, token, rung, group, answer, frame, released_ms: releasedMs, delay_ms: delayMs, ready_ms: readyMs, key } of vectors.frames) {
    const known = surveys.get(survey);
    const made = frameOf(known, { windowMs, rung, token: fromHex(token), answer: fromHex(answer), group, key: key === null ? undefined : fromHex(key) });
    checks.equal(`frame ${survey} ${rung}`, [hex(made), Math.min(releasedMs + delayMs, Math.max(releasedMs, known.expiryMs(windowMs)))], [frame, readyMs]);
  }
  for (const { envelope, now_ms: nowMs, key, taken, id = null } of vectors.envelopes) {
    const found = await Survey.opened(envelope, { nowMs, key }).then((survey) => survey.id, () => null);
    checks.equal(`envelope at ${nowMs}`, [found !== null, found], [taken, id]);
  }
  for (const story of vectors.stories) await tell(checks, story, newStore);
  return checks;
}
