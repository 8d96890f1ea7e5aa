// All surveys at once: a card each, with the first value of the newest settled window and its line over time.

import { h, keyed, setAttribute, setText, svg } from "./dom.js";
import { overviewRows } from "./exportrows.js";
import { saveCsv } from "./export.js";
import { saveButton } from "./figures.js";
import { OF_ALL, atOnce, band, devicesOf, halfWidth, number, opening, plural, quantityOf } from "./format.js";
import { shortByName } from "./labels.js";
import { newestSettled, isSettled } from "./settled.js";
import { go, state, surveyAddress } from "./state.js";
import { ageText } from "./surveystate.js";
import { WindowStore } from "./windows.js";
import { time } from "./zone.js";

const WINDOWS_SHOWN = 30;
const MATCHES_SHOWN = 4;
/** Signs of a name that fit into one line of a card, and into two on a phone. */
const NAME_SIGNS = 24;

/** The share with the highest lower bound of a window; a mean only where nothing else is estimated. */
function firstValue(info, window) {
  const shares = info.quantities.includes("share");
  const rank = (index) => (shares && info.quantities[index] !== "share" ? -Infinity : window.values[index].lower ?? -Infinity);
  return window.values.reduce((best, _, index) => (rank(index) > rank(best) ? index : best), 0);
}

class Card {
  constructor(info, clock) {
    this.info = info;
    this.clock = clock;
    this.names = shortByName(info.values.map((_, index) => opening(info, index)), NAME_SIGNS);
    this.store = new WindowStore(info, clock, () => this.changed(), WINDOWS_SHOWN);
    this.health = null;
    this.age = h("span", { class: "chip" });
    this.headline = h("p", { class: "headline" });
    this.number = h("strong", {});
    this.value = h("span", { class: "headline-value", dir: "auto" });
    this.band = h("span", { class: "headline-band" });
    this.headline.append(this.value, this.number, this.band);
    this.meta = h("p", { class: "card-meta" });
    this.area = svg("polygon", { class: "spark-area" });
    this.line = svg("polyline", { class: "spark-line" });
    this.matches = h("p", { class: "matches", hidden: true });
    this.link = h("a", { class: "card-link", href: "/", "data-inside": "" }, info.name);
    this.node = h("article", { class: "card survey-card", data: { card: info.id } },
      h("div", { class: "card-top" }, h("h2", { title: info.name }, this.link), this.age),
      h("p", { class: "card-question", title: info.question }, info.question),
      this.headline, svg("svg", { class: "card-spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true" }, this.area, this.line),
      this.meta, this.matches);
    new IntersectionObserver(([entry]) => {
      // Cards out of sight are not read.
      if (entry.isIntersecting && this.store.outcome === null && this.store.asked === 0) this.store.load();
    }, { rootMargin: "300px" }).observe(this.node);
  }

  changed() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      if (this.node.isConnected) this.draw();
    });
  }

  /** What the card shows: {info, freshness, window, index}. */
  seen() {
    const window = newestSettled(this.store.sorted);
    return { info: this.info, freshness: this.health?.state ?? "unknown", window, index: window === null ? 0 : firstValue(this.info, window) };
  }

  draw() {
    const { window, index } = this.seen();
    setAttribute(this.link, "href", surveyAddress(this.info.id));
    setText(this.age, ageText(this.health, this.clock()));
    const { outcome } = this.store;
    const known = window !== null;
    const unknown = outcome !== "ok" && (outcome !== null || Boolean(this.health?.down));
    setAttribute(this.node, "data-state", known ? "settled" : unknown ? "unknown" : outcome === null ? "loading" : "none");
    setAttribute(this.node, "data-freshness", this.health?.state ?? "unknown");
    if (known) this.drawHeadline(window, index);
    else {
      const open = this.store.sorted.at(-1);
      const text = unknown ? "unknown" : outcome === null ? "reading …" : open ? (open.withheld ? "no estimate published yet" : "no window settled yet") : "no estimates yet";
      setText(this.value, text);
      setText(this.number, "");
      setText(this.band, "");
      setText(this.meta, unknown ? outcome ?? "Redis does not answer" : open ? open.withheld?.text ?? `${plural(devicesOf(this.info, open.users), "device")} in the newest window` : "");
      setAttribute(this.line, "points", "");
      setAttribute(this.area, "points", "");
    }
  }

  drawHeadline(window, index) {
    // The value was chosen because it is first: the band of all values at once holds for it too, its own band does not.
    const row = atOnce(window.values[index]);
    const quantity = quantityOf(this.info, index);
    setText(this.value, this.names.get(opening(this.info, index)));
    setAttribute(this.value, "title", opening(this.info, index));
    setText(this.number, number(row.estimate, quantity, halfWidth(row) ?? 0.01));
    setText(this.band, halfWidth(row) === null ? "" : band(row, quantity));
    setAttribute(this.band, "title", `${Number((100 * (1 - window.alpha)).toPrecision(4))} % sure${this.info.values.length > 1 ? OF_ALL : ""}`);
    setText(this.meta, `${plural(devicesOf(this.info, window.users), "device")} · window of ${time(window.window_start_ms, this.info.window_step_ms, this.clock())} · ${plural(this.info.values.length, "value")}`);
    const rows = this.store.sorted.filter(isSettled).map((one) => ({ x: one.window_start_ms, ...one.values[index] })).filter((one) => halfWidth(one) !== null);
    const most = Math.max(...rows.map(({ upper }) => upper));
    const least = Math.min(...rows.map(({ lower }) => lower));
    const [from, to] = [rows[0]?.x, rows.at(-1)?.x];
    const at = (x, y) => `${((100 * (x - from)) / Math.max(1, to - from)).toFixed(1)},${(28 - (26 * (y - least)) / Math.max(1e-9, most - least)).toFixed(1)}`;
    const enough = rows.length > 1;
    setAttribute(this.line, "points", enough ? rows.map(({ x, estimate }) => at(x, estimate)).join(" ") : "");
    setAttribute(this.area, "points", enough ? [...rows.map(({ x, upper }) => at(x, upper)), ...rows.map(({ x, lower }) => at(x, lower)).reverse()].join(" ") : "");
  }

  /** Whether the card matches a search; values that match become links to the survey with the value highlighted. */
  match(asked) {
    const has = (text) => text.toLowerCase().includes(asked);
    const found = asked === "" ? [] : this.info.values.filter(has);
    this.matches.hidden = found.length === 0;
    const links = found.slice(0, MATCHES_SHOWN).map((value) => h("a", { href: surveyAddress(this.info.id, { value }), "data-inside": "", title: value }, value));
    const more = found.length > MATCHES_SHOWN ? [h("a", { href: surveyAddress(this.info.id, { q: state.q }), "data-inside": "" }, `and ${found.length - MATCHES_SHOWN} more`)] : [];
    this.matches.replaceChildren("Values: ", ...[...links, ...more].flatMap((link) => [link, " "]));
    return asked === "" || found.length > 0 || has(this.info.name) || has(this.info.question) || has(this.info.id);
  }
}

export class Overview {
  constructor(clock) {
    this.clock = clock;
    this.cards = new Map();
    this.health = null;
    this.search = h("input", {
      type: "search", id: "search-surveys", placeholder: "name, question or value", autocomplete: "off", spellcheck: "false",
      on: { input: () => go({ q: this.search.value }, { replace: true }) },
    });
    this.count = h("span", { class: "range-note", role: "status" });
    this.grid = h("div", { class: "cards" });
    this.empty = h("p", { class: "card empty", hidden: true });
    const exported = () => ({ name: "thaw-surveys", ...overviewRows(this.shown().map((card) => card.seen())) });
    this.node = h("section", { class: "overview", "aria-label": "All surveys" },
      h("div", { class: "controls" }, h("div", { class: "range" }, h("label", { for: "search-surveys" }, "Search"), this.search, this.count),
        saveButton("CSV", "the overview", () => saveCsv(exported()))),
      this.grid, this.empty);
  }

  /** infos: all surveys, in order. */
  setSurveys(infos) {
    for (const info of infos) if (!this.cards.has(info.id)) this.cards.set(info.id, new Card(info, this.clock));
    for (const id of this.cards.keys()) if (!infos.some((info) => info.id === id)) this.cards.delete(id);
    this.order = infos.map((info) => this.cards.get(info.id));
    this.draw();
  }

  shown() {
    const asked = state.q.trim().toLowerCase();
    return (this.order ?? []).filter((card) => card.match(asked));
  }

  setHealth(health) {
    for (const entry of health.surveys) {
      const card = this.cards.get(entry.survey);
      if (card) card.health = { ...entry, down: health.store !== "up" };
      if (health.store === "up") card?.store.retry();
    }
  }

  hear(window) {
    const card = this.cards.get(window.survey);
    if (card?.store.outcome === "ok") card.store.hear(window);
  }

  /** After a connection was lost windows may have been missed. */
  load() {
    for (const card of this.cards.values()) if (card.store.asked > 0) card.store.load();
  }

  draw() {
    if (document.activeElement !== this.search) this.search.value = state.q;
    const shown = this.shown();
    keyed(this.grid, shown, (card) => card.info.id, (card) => card.node, (_node, card) => card.draw());
    const all = this.cards.size;
    setText(this.count, state.q === "" ? plural(all, "survey") : `${shown.length} of ${plural(all, "survey")}`);
    this.empty.hidden = shown.length > 0 || this.order === undefined;
    setText(this.empty, all === 0 ? "No surveys: the folder THAW_SURVEYS has no survey files." : "No survey and no value matches the search.");
  }
}
