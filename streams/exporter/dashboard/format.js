// Numbers and sentences. Estimates are unbiased and may lie outside 0 to 100 %; sentences say "at most" or "at least".

const whole = new Intl.NumberFormat("en-US");
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

export const count = (number) => whole.format(number);

/** Digits after the point of a percentage, so that a band of this half-width has one or two significant digits. */
function digits(half) {
  const percent = 100 * half;
  if (!(percent > 0)) return 2;
  return [10, 0.4, 0.04, 0.004].filter((limit) => percent < limit).length;
}

export function number(value, quantity, half = 0.01) {
  if (value === null || value === undefined) return "–";
  const places = digits(quantity === "share" ? half : half / 100);
  return quantity === "share" ? `${(100 * value).toFixed(places)} %` : value.toFixed(places);
}

export function points(half, quantity) {
  const places = digits(quantity === "share" ? half : half / 100);
  return quantity === "share" ? `±${(100 * half).toFixed(places)} points` : `±${half.toFixed(places)}`;
}

export const halfWidth = (row) =>
  row.lower === null || row.upper === null || row.lower === undefined ? null : (row.upper - row.lower) / 2;

export function time(ms, stepMs = 1000) {
  return (stepMs >= 3_600_000 ? day : clock).format(new Date(ms));
}

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
  if (half === null) return "not known yet";
  const say = (value) => number(value, quantity, half);
  if (quantity !== "share") return `between ${say(row.lower)} and ${say(row.upper)}`;
  if (row.upper <= 0) return `next to none${of}`;
  if (row.lower <= 0 && row.upper >= 1) return "not known yet: anything from none to all";
  if (row.lower <= 0) return `at most ${say(row.upper)}${of}`;
  if (row.upper >= 1) return `at least ${say(row.lower)}${of}`;
  return `between ${say(row.lower)} and ${say(row.upper)}${of}`;
}

/** "between 11.8 % and 13.1 % of devices, 95 % sure, 41,220 devices, epsilon up to 1.0" */
export function sentence(window, row, quantity) {
  const of = window.population === "fleet" ? " of devices" : " of the population";
  const sure = `${Number((100 * (1 - window.alpha)).toPrecision(4))} % sure`;
  const spent = epsilonSpent(window);
  const cost = spent === null ? "without a local privacy guarantee" : `epsilon up to ${epsilon(spent)}`;
  return `${between(row, quantity, of)}, ${sure}, ${count(window.users)} devices, ${cost}`;
}

export function plural(amount, one, many = `${one}s`) {
  return `${count(amount)} ${amount === 1 ? one : many}`;
}
