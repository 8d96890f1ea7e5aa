// The windows of one survey that the page holds: those of the time range, the chosen one, and their histories.

import { api } from "./api.js";
import { isSettled, newer, newestSettled } from "./settled.js";

export const SETTLED_SHOWN = 60;
const WINDOWS_ASKED = 500;
const ROWS_HELD = 50_000;
const AGAIN_MS = 3000;

const SAME = ["computed_ms", "state", "users"];

const byStart = (a, b) => a.window_start_ms - b.window_start_ms;

/** The columns of one point of a history, as the API has them. */
function pointOf(window) {
  const columns = { time_ms: window.computed_ms, users_per_rung: window.users_per_rung, values: [], estimate: [], lower: [], upper: [] };
  window.values.forEach((row, index) => {
    columns.values.push(index);
    for (const name of ["estimate", "lower", "upper"]) columns[name].push(row[name]);
  });
  return columns;
}

/** A range is {last: ms}, {from, to}, or {} for the newest windows. */
export class WindowStore {
  constructor(info, clock, changed, shown = SETTLED_SHOWN) {
    Object.assign(this, { info, clock, changed, shown });
    this.windows = new Map();
    this.histories = new Map();
    this.extra = null;
    this.chosen = null;
    this.range = {};
    this.sorted = [];
    this.truncated = false;
    /** What the last request ended with: null before its answer, "ok", or why it failed. */
    this.outcome = null;
    this.asked = 0;
  }

  /** Windows that are held at most: fewer if each has many values. */
  get most() {
    return Math.min(WINDOWS_ASKED, Math.max(SETTLED_SHOWN, Math.floor(ROWS_HELD / Math.max(1, this.info.values.length))));
  }

  get isNewest() {
    return this.range.last === undefined && this.range.from === undefined;
  }

  bounds() {
    if (this.range.from !== undefined) return [this.range.from, this.range.to];
    return this.range.last === undefined ? [-Infinity, Infinity] : [Math.max(0, Math.floor(this.clock() - this.range.last)), Infinity];
  }

  setRange(range) {
    if (JSON.stringify(range) === JSON.stringify(this.range)) return;
    this.range = range;
    this.outcome = null;
    this.trim();
    this.load();
  }

  /** Request the windows of the range. An answer that comes after a later request is dropped. */
  async load() {
    this.asked += 1;
    const mine = this.asked;
    this.askedAt = Date.now();
    try {
      const { windows, truncated } = await (this.isNewest ? this.newest() : this.ranged());
      if (mine !== this.asked) return;
      for (const window of windows) this.put(window);
      this.truncated = truncated;
      this.outcome = "ok";
    } catch (error) {
      if (mine !== this.asked) return;
      this.outcome = error.message;
    } finally {
      if (mine === this.asked) this.update();
    }
  }

  /** As many settled windows as are shown, and all newer ones. */
  async newest() {
    const { id, window_step_ms: step, settles_after_ms: settles } = this.info;
    const { windows, truncated } = await api.windows(id, Math.min(WINDOWS_ASKED, this.shown + Math.ceil(settles / step)));
    if (truncated && newestSettled([...windows].reverse()) === null) {
      // More windows are open at once than one answer holds.
      const to = Math.max(0, Math.floor(this.clock() - settles));
      windows.push(...(await api.windows(id, this.shown, { to })).windows);
    }
    return { windows, truncated: false };
  }

  ranged() {
    const [from, to] = this.bounds();
    return api.windows(this.info.id, this.most, { from, to: Number.isFinite(to) ? to : null });
  }

  /** Request again what could not be read, not more often than every few seconds. */
  retry() {
    if (this.outcome !== null && this.outcome !== "ok" && Date.now() - this.askedAt > AGAIN_MS) this.load();
  }

  put(window) {
    const known = this.windows.get(window.window_start_ms);
    this.windows.set(window.window_start_ms, newer(known, window));
  }

  /** A window as the event stream tells it. */
  hear(window) {
    const start = window.window_start_ms;
    const known = this.windows.get(start);
    // After connecting, the stream repeats what was just read.
    if (known && SAME.every((name) => known[name] === window[name]) && known.truth?.devices === window.truth?.devices) return;
    if (this.extra?.window_start_ms === start) this.extra = window;
    const [from, to] = this.bounds();
    if (start >= from && start <= to) this.windows.set(start, window);
    const history = this.histories.get(start);
    if (history && (!known || known.computed_ms !== window.computed_ms)) history.push(pointOf(window));
    this.update();
  }

  update() {
    this.trim();
    this.changed();
  }

  trim() {
    const [from, to] = this.bounds();
    this.sorted = [...this.windows.values()].filter(({ window_start_ms: start }) => start >= from && start <= to).sort(byStart);
    if (this.isNewest) {
      const settled = this.sorted.filter(isSettled);
      const open = this.sorted.filter((window) => !isSettled(window));
      this.sorted = [...settled.slice(-this.shown), ...open.slice(-WINDOWS_ASKED)].sort(byStart);
    } else this.sorted = this.sorted.slice(-this.most);
    const held = new Set(this.sorted.map((window) => window.window_start_ms));
    for (const start of this.windows.keys()) {
      if (held.has(start)) continue;
      if (start === this.chosen) this.extra = this.windows.get(start);
      this.windows.delete(start);
    }
    for (const start of this.histories.keys()) if (!held.has(start) && start !== this.chosen) this.histories.delete(start);
  }

  find(start) {
    return this.windows.get(start) ?? (this.extra?.window_start_ms === start ? this.extra : undefined);
  }

  /** Hold one window, whether it is in the range or not. Returns false if there is no such window. */
  async choose(start) {
    this.chosen = start;
    if (start === null || this.find(start)) return true;
    try {
      const window = await api.window(this.info.id, start);
      if (this.chosen === start) this.extra = window;
      this.changed();
      return true;
    } catch (error) {
      return error.status !== 404;
    }
  }

  /** The history of a window; undefined until it was read. Requests it if need be. */
  history(start) {
    if (!this.histories.has(start)) this.loadHistory(start);
    const history = this.histories.get(start);
    return history?.ready ? history : undefined;
  }

  async loadHistory(start) {
    const points = [];
    this.histories.set(start, points);
    try {
      const read = (await api.history(this.info.id, start)).points;
      const last = read.at(-1)?.time_ms ?? -Infinity;
      points.unshift(...read);
      // What the stream told meanwhile may be in the answer too.
      points.splice(read.length, points.length - read.length, ...points.slice(read.length).filter((point) => point.time_ms > last));
      points.ready = true;
      this.changed();
    } catch {
      this.histories.delete(start);
    }
  }
}
