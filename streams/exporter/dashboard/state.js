// What is shown is in the address, so that every view has a link and the back button works: survey, value, window,
// time range, search, view, time zone. Unknown and malformed parameters are ignored.

const NAMES = ["survey", "value", "window", "from", "to", "last", "q", "view", "tz", "theme"];
const listeners = new Set();

/** Milliseconds as the shortest ISO text in UTC; also for file names and exports. */
export const isoTime = (ms) => new Date(ms).toISOString().replace(".000Z", "Z");

const UNITS = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** "90s", "15m", "6h", "7d" in milliseconds; null if it is none of these. */
export function readSpan(text) {
  const match = /^([1-9]\d{0,5})([smhd])$/.exec(text ?? "");
  return match ? Number(match[1]) * UNITS[match[2]] : null;
}

export function writeSpan(ms) {
  const unit = ["d", "h", "m", "s"].find((name) => ms % UNITS[name] === 0);
  return `${ms / UNITS[unit]}${unit}`;
}

function readTime(text) {
  const ms = /^\d{1,16}$/.test(text ?? "") ? Number(text) : Date.parse(text ?? "");
  return Number.isFinite(ms) && ms >= 0 ? ms : null;
}

function parse(search) {
  const asked = new URLSearchParams(search);
  const [from, to] = [readTime(asked.get("from")), readTime(asked.get("to"))];
  const fixed = from !== null && to !== null && from <= to;
  return {
    survey: asked.get("survey"), value: asked.get("value"), window: readTime(asked.get("window")),
    from: fixed ? from : null, to: fixed ? to : null, last: fixed ? null : readSpan(asked.get("last")),
    q: asked.get("q") ?? "", view: asked.get("view"), tz: asked.get("tz"), theme: asked.get("theme"),
  };
}

const TEXTS = { window: isoTime, from: isoTime, to: isoTime, last: writeSpan };

/** The address of a state. */
export function address(state) {
  const query = new URLSearchParams();
  for (const name of NAMES) {
    const item = state[name];
    if (item !== null && item !== undefined && item !== "") query.set(name, TEXTS[name]?.(item) ?? item);
  }
  const text = query.toString().replaceAll("%3A", ":");
  return text === "" ? "/" : `/?${text}`;
}

export let state = parse(location.search);

/** The address of another survey, or of the overview (null): the time zone and the theme stay, the rest does not. */
export const surveyAddress = (survey, more = {}) => address({ survey, tz: state.tz, theme: state.theme, ...more });

function told() {
  listeners.forEach((listener) => listener(state));
}

/** Change a part of the state. `replace`: without an entry for the back button, for what changes with every key press. */
export function go(changes, { replace = false } = {}) {
  const next = address({ ...state, ...changes });
  if (next === address(state)) return;
  history[replace ? "replaceState" : "pushState"](null, "", next);
  state = parse(location.search);
  told();
}

/** Go to an address of this page, as from a link. */
export function open(path) {
  go({ ...Object.fromEntries(NAMES.map((name) => [name, null])), ...parse(new URL(path, location.href).search) });
}

export function followState(listener) {
  listeners.add(listener);
}

addEventListener("popstate", () => {
  state = parse(location.search);
  told();
});

// Links inside the page change the state without loading the page again; with a modifier key the browser decides.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-inside]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  open(link.href);
});

/** Links of earlier versions named the survey after #. */
export function adoptOldLink() {
  const match = /^#([a-z0-9][a-z0-9_-]{0,47}-[0-9a-f]{8})$/.exec(location.hash);
  if (match) go({ survey: match[1] }, { replace: true });
}
