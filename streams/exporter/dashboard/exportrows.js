// The rows of exported files: plain numbers in the quantity's own unit, times in UTC and ISO form, one fact per row.

import { quantityOf } from "./format.js";
import { isoTime } from "./state.js";

const BAND = ["estimate", "lower", "upper"];
const numbers = (row) => BAND.map((name) => row[name] ?? null);
const quantityCells = (info, index) => [info.values[index], ...(({ kind, unit }) => [kind, unit])(quantityOf(info, index))];
const windowCells = (info, window) => [info.id, isoTime(window.window_start_ms), isoTime(window.window_end_ms), window.state];

const WINDOW_HEAD = ["survey", "window_start", "window_end", "state"];
const VALUE_HEAD = [...WINDOW_HEAD, "users", "value", "quantity", "unit", ...BAND, "simultaneous_lower", "simultaneous_upper", "truth", "alpha", "method"];

function valueCells(info, window, index) {
  const row = window.values[index];
  return [...windowCells(info, window), window.users, ...quantityCells(info, index), ...numbers(row), row.simultaneous_lower, row.simultaneous_upper,
    window.truth?.shares[index] ?? null, window.alpha, window.method];
}

/** Windows of the range, oldest first, with the values that are drawn. */
export function windowsRows(info, windows, indices) {
  return { head: VALUE_HEAD, rows: windows.flatMap((window) => indices.map((index) => valueCells(info, window, index))) };
}

/** One window with the values that are listed, in their order. */
export function valuesRows(info, window, listed) {
  return { head: VALUE_HEAD, rows: window === null ? [] : listed.map(({ index }) => valueCells(info, window, index)) };
}

export function historyRows(info, window, points, index) {
  const rungs = info.epsilons.map((_, rung) => `users_rung_${rung}`);
  return {
    head: ["survey", "window_start", "time", "value", "quantity", "unit", ...BAND, ...rungs],
    rows: window === null ? [] : points.map((point) => [info.id, isoTime(window.window_start_ms), isoTime(point.time_ms), ...quantityCells(info, index), ...numbers(point), ...point.users]),
  };
}

export function usersRows(info, windows) {
  const rungs = info.epsilons.map((_, rung) => `users_rung_${rung}`);
  return { head: [...WINDOW_HEAD, "users", ...rungs], rows: windows.map((window) => [...windowCells(info, window), window.users, ...window.users_per_rung]) };
}

/** One row per survey of the overview. */
export function overviewRows(cards) {
  return {
    head: ["survey", "name", "question", "freshness", "window_start", "users", "value", "quantity", "unit", ...BAND],
    rows: cards.map(({ info, freshness, window, index }) => [info.id, info.name, info.question, freshness,
      ...(window === null ? Array(8).fill(null) : [isoTime(window.window_start_ms), window.users, ...quantityCells(info, index), ...numbers(window.values[index])])]),
  };
}
