// Bytes, hexadecimal, base64, and hashes of WebCrypto.

const encoder = new TextEncoder();

/** @param {string} text */
export const utf8 = (text) => encoder.encode(text);

/** @param {Uint8Array} bytes */
export const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** @param {string} text */
export const fromHex = (text) => Uint8Array.from({ length: text.length / 2 }, (_, at) => parseInt(text.slice(2 * at, 2 * at + 2), 16));

/** @param {Uint8Array} bytes */
export const base64 = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));

/** The bytes of strict base64; a TypeError or DOMException for anything else. @param {string} text */
export function fromBase64(text) {
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  if (base64(bytes) !== text) throw new TypeError("this is no base64");
  return bytes;
}

/** @param {Uint8Array[]} parts */
export function joined(...parts) {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** An integer in so many bytes, little-endian. @param {bigint | number} number @param {number} size */
export function little(number, size) {
  const bytes = new Uint8Array(size);
  let rest = BigInt.asUintN(8 * size, BigInt(number));
  for (let at = 0; at < size; at += 1) {
    bytes[at] = Number(rest & 255n);
    rest >>= 8n;
  }
  return bytes;
}

/** Bytes filled up with zeros to whole words of eight. @param {Uint8Array} bytes */
export const padded = (bytes) => joined(bytes, new Uint8Array((8 - (bytes.length % 8)) % 8));

/** @param {Uint8Array} bytes */
export const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));

/** @param {Uint8Array} secret @param {Uint8Array} bytes */
export async function hmac(secret, bytes) {
  const key = await crypto.subtle.importKey("raw", secret, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", key, bytes));
}

/** Whether an Ed25519 signature of a message is that of a public key. @param {Uint8Array} publicKey @param {Uint8Array} message @param {Uint8Array} signature */
export async function signedBy(publicKey, message, signature) {
  const key = await crypto.subtle.importKey("raw", publicKey, { name: "Ed25519" }, false, ["verify"]);
  return crypto.subtle.verify({ name: "Ed25519" }, key, signature, message);
}
