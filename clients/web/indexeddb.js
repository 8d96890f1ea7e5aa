// A ledger in IndexedDB, for browsers. Changes are serialised by the browser, also between tabs.

import { stateOf } from "./ledger.js";

const PLACE = "state";

/** @implements {import("./ledger.js").Store} */
export class IndexedDBStore {
  /** @param {string} name of the database */
  constructor(name = "thaw") {
    this.name = name;
    this.opened = null;
  }

  #open() {
    this.opened ??= new Promise((resolve, reject) => {
      const request = indexedDB.open(this.name, 1);
      request.onupgradeneeded = () => request.result.createObjectStore("ledger");
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
    return this.opened;
  }

  /** @returns {Promise<import("./ledger.js").State>} */
  read() {
    // The first look makes the secret, which must be on the disk before a token is made of it.
    return this.update((state) => structuredClone(state));
  }

  /** @template T @param {(state: import("./ledger.js").State) => T} change @returns {Promise<T>} */
  async update(change) {
    const database = await this.#open();
    return new Promise((resolve, reject) => {
      // Strict: the transaction is over when it is on the disk.
      const transaction = database.transaction("ledger", "readwrite", { durability: "strict" });
      const ledger = transaction.objectStore("ledger");
      const request = ledger.get(PLACE);
      let result;
      let failed = null;
      request.onsuccess = () => {
        try {
          const state = stateOf(request.result);
          result = change(state);
          ledger.put(state, PLACE);
        } catch (error) {
          failed = error;
          transaction.abort();
        }
      };
      transaction.oncomplete = () => resolve(result);
      transaction.onabort = () => reject(failed ?? transaction.error);
    });
  }

  close() {
    this.opened?.then((database) => database.close());
    this.opened = null;
  }
}
