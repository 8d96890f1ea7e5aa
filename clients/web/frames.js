// Tokens, keys, shards and frames of wire versions 1 and 2.

import { hmac, joined, little, padded, sha256, utf8 } from "./bytes.js";

const HEADER_BYTES = 40;
const KEY_DOMAIN = joined(utf8("thaw.key.v2"), new Uint8Array(1));

/** The token of a chain; where answers can be withdrawn the secret key that it follows from. @param {Uint8Array} secret @param {Uint8Array} digest @param {number} windowMs */
export async function tokenOf(secret, digest, windowMs) {
  return (await hmac(secret, joined(digest, little(windowMs, 8), little(0, 4)))).subarray(0, 16);
}

/**
 * The token of a chain whose answer can be withdrawn, and the keys of all rungs, the secret last.
 * @param {Uint8Array} secretKey @param {number} rungs @param {Uint8Array} digest @param {number} windowMs
 */
export async function keysOf(secretKey, rungs, digest, windowMs) {
  const keys = [secretKey];
  for (let step = rungs; step >= 0; step -= 1) {
    const hashed = await sha256(joined(KEY_DOMAIN, little(step, 4), digest, little(windowMs, 8), keys[0]));
    keys.unshift(hashed.subarray(0, 16));
  }
  const [token, ...others] = keys;
  return { token, keys: others };
}

/** What names a chain of a survey: its token, and its keys where its answer can be withdrawn. @param {Uint8Array} secret @param {import("./survey.js").Survey} survey @param {number} windowMs */
export async function namesOf(secret, survey, windowMs) {
  const named = await tokenOf(secret, survey.digest, windowMs);
  return survey.withdrawable ? keysOf(named, survey.rungs, survey.digest, windowMs) : { token: named, keys: [] };
}

/** @param {Uint8Array} token @param {number} shards */
export const shardOf = (token, shards) => (token[13] + 256 * token[14] + 65_536 * token[15]) % shards;

/**
 * One report as a frame of its own.
 * @param {import("./survey.js").Survey} survey
 * @param {{ windowMs: number, rung: number, token: Uint8Array, answer: Uint8Array, group: number, key?: Uint8Array }} report key: of its
 *   rung, where answers can be withdrawn
 */
export function frameOf(survey, { windowMs, rung, token, answer, group, key }) {
  const columns = [padded(token), padded(answer), padded(little(rung, 1))];
  if (survey.client.grouped) columns.push(padded(little(group, 2)));
  if (survey.withdrawable) columns.push(padded(key));
  const body = joined(...columns);
  const header = [
    utf8("THW"), little(survey.withdrawable ? 2 : 1, 1), little(HEADER_BYTES + body.length, 4), survey.digest, little(windowMs, 8),
    little(survey.publicMs(windowMs, rung), 8),
    little(shardOf(token, survey.shards), 2), little(1, 4), little(0, 2),
  ];
  return joined(...header, body);
}
