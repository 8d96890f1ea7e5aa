// What a ledger holds. A store keeps one such state, and changes it atomically and durably: `read()`, and `update(change)`,
// which returns what `change(state)` returns once the changed state is on the disk; if `change` throws, nothing was changed.

import { base64 } from "./bytes.js";

/**
 * @typedef {object} Chain
 * @property {string} surveyId
 * @property {string} name of the survey
 * @property {number} windowMs
 * @property {string[]} answers per rung, in hexadecimal
 * @property {number} group
 * @property {number[]} delaysMs per rung
 * @property {string} token in hexadecimal
 * @property {string[]} keys where answers can be withdrawn: of all rungs in hexadecimal, that of the withdrawal last
 * @property {string | null} withdrawal the report that takes the answer back, in base64; null where none can, and once it has
 * @property {number} withdrawalDelayMs
 * @property {number} drawnMs
 * @property {number[]} released rungs, in order
 * @property {boolean} withdrawn its answers are erased, and it is not answered again
 * @property {string} chargedUnits
 * @property {number} expiresMs
 */

/**
 * @typedef {object} OutgoingReport
 * @property {number} id
 * @property {string} surveyId
 * @property {number} windowMs
 * @property {number} rung
 * @property {number} readyMs
 * @property {string} frame in base64
 * @property {boolean} withdrawal whether it takes an answer back
 */

/**
 * @typedef {object} Account what one survey, by its name, has cost
 * @property {string} spentUnits
 * @property {number} unbounded answers without a finite cost
 * @property {number | null} answeredMs windows up to this one are not answered (again)
 */

/**
 * @typedef {object} State
 * @property {number} version
 * @property {string} secret in base64
 * @property {boolean} consent
 * @property {string} spentUnits
 * @property {Record<string, Account>} accounts
 * @property {Chain[]} chains those whose answers still count
 * @property {OutgoingReport[]} outbox
 * @property {number} nextId
 */

export const VERSION = 1;

/** @typedef {{ read(): Promise<State>, update<T>(change: (state: State) => T): Promise<T>, close(): void }} Store */

/** A fresh secret, in base64. */
export const newSecret = () => base64(crypto.getRandomValues(new Uint8Array(32)));

/** The state of a device that has answered nothing. @returns {State} */
export const emptyState = () => ({ version: VERSION, secret: newSecret(), consent: true, spentUnits: "0", accounts: {}, chains: [], outbox: [], nextId: 1 });

/** The state that a store holds, checked; a fresh one if it holds none. @param {State | undefined} stored @returns {State} */
export function stateOf(stored) {
  if (stored === undefined || stored === null) return emptyState();
  if (stored.version !== VERSION) throw new Error(`the ledger has version ${stored.version}; this client reads version ${VERSION}; use the client that wrote it`);
  return stored;
}

/** The account of a survey, made if there is none. @param {State} state @param {string} name @returns {Account} */
export function accountOf(state, name) {
  state.accounts[name] ??= { spentUnits: "0", unbounded: 0, answeredMs: null };
  return state.accounts[name];
}

/** Answer no window of a survey up to this one again. @param {State} state @param {{ name: string, windowMs: number }} chain */
export function closeWindow(state, { name, windowMs }) {
  const account = accountOf(state, name);
  account.answeredMs = Math.max(account.answeredMs ?? windowMs, windowMs);
}
