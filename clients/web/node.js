// A ledger in a file, for Node. One process at a time.

import { mkdir, open, readFile, rename } from "node:fs/promises";
import { dirname, resolve as absolute } from "node:path";

import { stateOf } from "./ledger.js";

/** @implements {import("./ledger.js").Store} */
export class FileStore {
  /** @param {string} path */
  constructor(path) {
    this.path = absolute(path);
    this.last = Promise.resolve();
  }

  /** @returns {Promise<import("./ledger.js").State>} */
  read() {
    return this.update((state) => structuredClone(state));
  }

  /** @template T @param {(state: import("./ledger.js").State) => T} change @returns {Promise<T>} */
  update(change) {
    const done = this.last.then(() => this.#changed(change));
    this.last = done.catch(() => undefined);
    return done;
  }

  async #changed(change) {
    const stored = await readFile(this.path, "utf-8").catch((error) => {
      if (error.code === "ENOENT") return null;
      throw error;
    });
    const state = stateOf(stored === null ? undefined : JSON.parse(stored));
    const result = change(state);
    const text = JSON.stringify(state);
    if (text !== stored) await this.#write(text);
    return result;
  }

  /** Write beside the file, on the disk, then take its place: the file is whole at any moment. */
  async #write(text) {
    await mkdir(dirname(this.path), { recursive: true });
    const draft = `${this.path}.draft`;
    const file = await open(draft, "w", 0o600);
    try {
      await file.writeFile(text, "utf-8");
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(draft, this.path);
    const folder = await open(dirname(this.path), "r");
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  }

  close() {}
}
