// BLAKE2b (RFC 7693) with salt and personalisation, which WebCrypto does not have: strings of rappor are hashed with it.

const MASK = (1n << 64n) - 1n;
const IV = [
  0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
];
const SIGMA = [
  [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
  [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4], [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
  [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13], [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
  [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11], [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
  [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5], [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];
const QUARTERS = [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15], [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]];
const BLOCK = 128;

const turned = (word, by) => ((word >> by) | (word << (64n - by))) & MASK;

/** Eight bytes, little-endian, as an integer. @param {Uint8Array} bytes @param {number} at */
export const wordAt = (bytes, at) => bytes.subarray(at, at + 8).reduceRight((word, byte) => (word << 8n) | BigInt(byte), 0n);

function compress(state, block, counter, isLast) {
  const words = SIGMA[0].map((place) => wordAt(block, 8 * place));
  const v = [...state, ...IV];
  v[12] ^= BigInt(counter);
  if (isLast) v[14] ^= MASK;
  for (let round = 0; round < 12; round += 1) {
    const order = SIGMA[round % 10];
    QUARTERS.forEach(([a, b, c, d], at) => {
      v[a] = (v[a] + v[b] + words[order[2 * at]]) & MASK;
      v[d] = turned(v[d] ^ v[a], 32n);
      v[c] = (v[c] + v[d]) & MASK;
      v[b] = turned(v[b] ^ v[c], 24n);
      v[a] = (v[a] + v[b] + words[order[2 * at + 1]]) & MASK;
      v[d] = turned(v[d] ^ v[a], 16n);
      v[c] = (v[c] + v[d]) & MASK;
      v[b] = turned(v[b] ^ v[c], 63n);
    });
  }
  return state.map((word, at) => word ^ v[at] ^ v[at + 8]);
}

/**
 * The digest of a message, without a key.
 * @param {Uint8Array} message @param {{ size: number, salt: Uint8Array, person: Uint8Array }} parameters salt and person have 16 bytes
 */
export function blake2b(message, { size, salt, person }) {
  let state = [...IV];
  state[0] ^= 0x01010000n ^ BigInt(size);
  [salt, person].forEach((bytes, at) => {
    state[4 + 2 * at] ^= wordAt(bytes, 0);
    state[5 + 2 * at] ^= wordAt(bytes, 8);
  });
  const blocks = Math.max(Math.ceil(message.length / BLOCK), 1);
  for (let block = 0; block < blocks; block += 1) {
    const part = new Uint8Array(BLOCK);
    part.set(message.subarray(block * BLOCK, (block + 1) * BLOCK));
    state = compress(state, part, Math.min((block + 1) * BLOCK, message.length), block === blocks - 1);
  }
  const digest = new Uint8Array(64);
  state.forEach((word, at) => new DataView(digest.buffer).setBigUint64(8 * at, word, true));
  return digest.subarray(0, size);
}
