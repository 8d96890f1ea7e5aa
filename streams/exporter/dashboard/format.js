// Numbers and sentences. Estimates are unbiased and may lie outside 0 to 100 %; sentences say "at most" or "at least".

// A quantity is {kind, unit, meaning}: shares are percent, means have the unit of their numbers.

const whole = new Intl.NumberFormat("en-US");

export const count = (number) => whole.format(number);

const MOST_DIGITS = 12;

/** Names of large numbers, and how an axis writes them. */
const LARGE = [[1e12, "trillion"], [1e9, "billion"], [1e6, "million"]];
const axis = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 6 });
const largeAxis = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 4 });

/** A bound of a range, with no more digits than it has. */
export const bound = (value) => axis.format(value);

/** Digits after the point of a percentage, so that a band of this half-width has one or two significant digits. */
function digits(half) {
  const percent = 100 * half;
  if (!(percent > 0)) return 2;
  let places = percent < 10 ? 1 : 0;
  for (let limit = 0.4; percent < limit && places < MOST_DIGITS; limit /= 10) places += 1;
  return places;
}

/** What the survey estimates under one label. */
export function quantityOf(info, index) {
  const of = (column, otherwise) => info[column]?.[index] ?? otherwise;
  return {
    kind: of("quantities", "share"), unit: of("units", ""), meaning: of("meanings", ""), name: of("names", info.values[index]),
    subject: of("subjects", "value"), low: of("lows", 0), high: of("highs", 1), sensitive: of("sensitive", false),
  };
}

/** Whether numbers of two quantities belong on one axis. */
export const sameScale = (one, other) => one.kind === other.kind && one.unit === other.unit && one.low === other.low && one.high === other.high;

/** Where a label is one of the two quantities of a key: the position of the other one; -1 if there is none. */
export function partnerOf(info, index) {
  const own = quantityOf(info, index);
  return own.subject !== "key" ? -1 : info.values.findIndex((_, other) => other !== index && quantityOf(info, other).name === own.name);
}

/** The name of a label in a sentence: a key with what is estimated about it. */
export function spoken(info, index) {
  const { kind, name, subject } = quantityOf(info, index);
  return subject !== "key" ? name : kind === "share" ? `share with “${name}”` : `mean of “${name}”`;
}

/** The same where a sentence begins with it: names stay as they are. */
export function opening(info, index) {
  const text = spoken(info, index);
  return quantityOf(info, index).subject === "key" ? `${text[0].toUpperCase()}${text.slice(1)}` : text;
}

const RIGHT_TO_LEFT = /[\p{Script=Adlam}\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Nko}\p{Script=Syriac}\p{Script=Thaana}]/u;

/** A name in a sentence: one that runs from right to left would take the number beside it to its other side. */
export const isolated = (name) => (RIGHT_TO_LEFT.test(name) ? `\u2068${name}\u2069` : name);

/** A sentence whose lines do not end between a number and its percent sign. */
export const unbroken = (text) => text.replaceAll(" %", "\u00a0%");

/** Whether the two shares of a window complement each other: a yes/no question, of which one line says everything. */
export function isYesNo(info, window) {
  const [one, other, ...more] = window?.values ?? [];
  return other !== undefined && more.length === 0 && info.quantities.every((kind) => kind === "share") && Math.abs(one.estimate + other.estimate - 1) < 1e-9;
}

/** Devices behind the reports of a window: one device may send several copies. */
export const devicesOf = (info, users) => Math.round(users / (info.copies ?? 1));

const isShare = (quantity) => quantity.kind === "share";
const withUnit = (text, quantity) => (isShare(quantity) ? `${text} %` : quantity.unit ? `${text} ${quantity.unit}` : text);
const places = (half, quantity) => digits(isShare(quantity) ? half : half / 100);

/** A number with the digits that a band of this half-width deserves, and `more`; from a million on with a word. */
function fixed(value, quantity, half, more = 0) {
  const [size, word] = (isShare(quantity) ? null : LARGE.find(([least]) => Math.abs(value) >= least)) ?? [1, ""];
  const [whole, ...rest] = (isShare(quantity) ? 100 * value : value / size).toFixed(Math.min(MOST_DIGITS, places(half / size, quantity) + more)).split(".");
  const text = [whole.replace(/\B(?=(\d{3})+$)/g, ","), ...rest].join(".");
  return withUnit(`${Number(text) === 0 ? text.replace("-", "") : text}${word && ` ${word}`}`, quantity);
}

/** A number on an axis. */
export const axisNumber = (quantity) => (value) =>
  isShare(quantity) ? `${Number((100 * value).toPrecision(4))} %` : (Math.abs(value) < 1e6 ? axis : largeAxis).format(value);

export function number(value, quantity, half = 0.01) {
  return value === null || value === undefined ? "–" : fixed(value, quantity, half);
}

/** Both ends of a band, with as many digits as it takes to tell them apart. */
export function ends(row, quantity, half = halfWidth(row)) {
  if (halfWidth(row) === null) return ["–", "–"];
  for (let more = 0; ; more += 1) {
    const [from, to] = [row.lower, row.upper].map((value) => fixed(value, quantity, half, more));
    if (from !== to || more >= MOST_DIGITS) return [from, to];
  }
}

/** A band in one cell: "11.8 % – 13.1 %", and a unit only once. */
export function band(row, quantity, half = halfWidth(row)) {
  const [from, to] = ends(row, quantity, half);
  const unit = isShare(quantity) || !quantity.unit ? "" : ` ${quantity.unit}`;
  return `${unit && from.endsWith(unit) ? from.slice(0, -unit.length) : from} – ${to}`;
}

/** Where the estimate of a mean lies outside its range: the one end of its band that says something. Else null. */
function oneEnd(row, quantity) {
  if (isShare(quantity) || halfWidth(row) === null) return null;
  const [from, to] = ends(row, quantity);
  if (row.estimate > quantity.high && row.lower > quantity.low && row.lower < quantity.high) return `at least ${from}`;
  return row.estimate < quantity.low && row.upper < quantity.high && row.upper > quantity.low ? `at most ${to}` : null;
}

/** A band in a cell beside the estimate of a quantity with a range. */
export const bandInRange = (row, quantity, half = halfWidth(row)) => oneEnd(row, quantity) ?? band(row, quantity, half);

export function points(half, quantity) {
  return isShare(quantity) ? `±${(100 * half).toFixed(digits(half))} points` : `±${fixed(half, quantity, half)}`;
}

/** Half the width of a band; null if there is none. No estimate is without error: a band of width 0 is no band. */
export const halfWidth = (row) => (Number.isFinite(row.lower) && row.upper > row.lower ? (row.upper - row.lower) / 2 : null);

/** The same row with the band that holds for all values of the window at once. */
export const OF_ALL = " of all values at once";
export const atOnce = (row) => ({ ...row, lower: row.simultaneous_lower, upper: row.simultaneous_upper });

export function span(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

export function compact(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1e6) return `${Number((value / 1e6).toFixed(value >= 1e7 ? 0 : 1))} M`;
  if (value >= 1e4) return `${Number((value / 1e3).toFixed(value >= 1e5 ? 0 : 1))} k`;
  return value >= 100 || Number.isInteger(value) ? count(Math.round(value)) : value.toFixed(1);
}

const epsilon = (value) => (value >= 10 || Number.isInteger(value) ? value.toFixed(1) : String(Number(value.toPrecision(3))));

/** The largest epsilon that a device has spent on this window; null without a local guarantee. */
export function epsilonSpent(window) {
  let spent = 0;
  window.users_per_rung.forEach((users, rung) => {
    if (users > 0) spent = window.epsilons[rung] === null || spent === null ? null : Math.max(spent, window.epsilons[rung]);
  });
  return spent;
}

export function epsilonText(value) {
  return value === null ? "∞" : epsilon(value);
}

function between(row, quantity, of) {
  const half = halfWidth(row);
  if (half === null) return isShare(quantity) ? "not known yet" : "not estimable";
  const [from, to] = ends(row, quantity);
  if (!isShare(quantity)) return oneEnd(row, quantity) ?? `between ${from} and ${to}`;
  if (row.upper <= 0) return `next to none${of}`;
  if (row.lower >= 1) return `nearly all${of}`;
  if (row.lower <= 0 && row.upper >= 1) return "not known yet: anything from none to all";
  // Enough digits for the distance to the end of the scale, too: not "at most 0.0 %".
  if (row.lower <= 0) return `at most ${number(row.upper, quantity, Math.min(half, row.upper / 2))}${of}`;
  if (row.upper >= 1) return `at least ${number(row.lower, quantity, Math.min(half, (1 - row.lower) / 2))}${of}`;
  return `between ${from} and ${to}${of}`;
}

/** "between 11.8 % and 13.1 % of devices, 95 % sure, 41,220 devices, epsilon up to 1.0"; claim: what one is sure of. */
export function sentence(window, row, quantity, claim = "") {
  const of = window.population === "fleet" ? " of devices" : " of the population";
  const sure = `${Number((100 * (1 - window.alpha)).toPrecision(4))} % sure${claim}`;
  const spent = epsilonSpent(window);
  const cost = spent === null ? "without a local privacy guarantee" : `epsilon up to ${epsilon(spent)}`;
  return `${between(row, quantity, of)}, ${sure}, ${count(window.devices ?? window.users)} devices, ${cost}`;
}

export function plural(amount, one, many = `${one}s`) {
  return `${count(amount)} ${amount === 1 ? one : many}`;
}
