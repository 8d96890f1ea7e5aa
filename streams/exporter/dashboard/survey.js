// The page of one survey: charts with a sentence each, and the values. All panels show the same window: the chosen one, or
// the newest that has settled.

import { AnswerCard, gatewayOf } from "./answer.js";
import { CellFigures } from "./cells.js";
import { h, keyed, setAttribute, setText } from "./dom.js";
import { OF_ALL, atOnce, count, devicesOf, ends, epsilonText, halfWidth, isYesNo, isolated, number, opening, plural, points, quantityOf, sameScale, sentence, span, spoken } from "./format.js";
import { Figure } from "./figures.js";
import { historyRows, usersRows, valuesRows, windowsRows } from "./exportrows.js";
import { term } from "./help.js";
import { HistoryChart } from "./historychart.js";
import { shortByName, shortNames } from "./labels.js";
import { rungColour, valueColour } from "./palette.js";
import { askedRange, RangeControl } from "./range.js";
import { contradictionText, isSettled, newestSettled, openText, waitText } from "./settled.js";
import { registryOf } from "./registry.js";
import { address, go, state } from "./state.js";
import { ageText, epsilonSentence } from "./surveystate.js";
import { isDark } from "./theme.js";
import { UsersChart } from "./userschart.js";
import { ValuesTable } from "./values.js";
import { WindowChooser } from "./windowchooser.js";
import { WindowStore } from "./windows.js";
import { WindowsChart } from "./windowschart.js";
import { time, zoneName } from "./zone.js";

const VALUES_DRAWN = 6;
const NAME_LENGTH = 16;
const LEGEND_LENGTH = 28;
const WAIT_MS = 1500;

const ASSUMED = { any: " · rungs may depend on values", independent: " · rungs assumed independent of values" };

const byLower = (a, b) => (b.row.lower ?? -Infinity) - (a.row.lower ?? -Infinity) || a.index - b.index;

export class SurveyView {
  constructor(info, clock) {
    this.info = info;
    this.clock = clock;
    this.store = new WindowStore(info, clock, () => this.changed());
    const names = info.values.map((_, index) => quantityOf(info, index).name);
    this.names = shortNames(names, NAME_LENGTH);
    this.legendNames = shortByName(names, LEGEND_LENGTH);
    this.held = null;
    this.order = [];
    this.drawn = [];
    this.build();
    this.follow();
  }

  build() {
    const { info } = this;
    this.age = h("span", { class: "chip", data: { role: "age" } });
    this.ladder = h("ol", { class: "ladder", "aria-label": "Rungs and their epsilon" },
      info.epsilons.map((epsilon, rung) => h("li", { data: { rung } }, h("i", { "aria-hidden": "true" }), `ε ${epsilonText(epsilon)}`)));
    this.legend = h("div", { class: "legend", role: "group", "aria-label": "Values drawn; choose one to highlight it" });
    this.range = new RangeControl(info, this.store, this.clock);
    this.chooser = new WindowChooser(this);
    this.buildFigures();
    this.warning = h("p", { class: "warning", role: "status", hidden: true });
    this.proven = h("span", {});
    this.epsilon = h("p", { class: "proven", data: { role: "epsilon" }, hidden: true }, term("proven epsilon", "Canary devices"), ": ", this.proven);
    this.empty = h("div", { class: "card empty", role: "status" });
    this.link = h("a", { class: "small-button", "data-inside": "", href: "/", title: "The address of exactly what is seen now" }, "Permalink");
    this.answer = gatewayOf() && !info.canary ? new AnswerCard(info, this.clock) : null;
    this.grid = h("div", { class: "grid", hidden: true }, this.chart1.node, this.values.node, ...this.cells.nodes, this.chart2.node, this.chart3.node);
    this.node = h("section", { class: "survey", id: info.id, data: { survey: info.id }, "aria-labelledby": `${info.id}-title` },
      h("div", { class: "survey-head" },
        h("div", {}, h("h2", { id: `${info.id}-title`, tabindex: -1, dir: "auto" }, info.question),
          h("p", { class: "about" }, h("code", {}, info.id), " · ", term("mechanism", info.mechanism), " · ", term("window", `windows of ${span(info.window_size_ms)}`),
            info.canary ? [" · ", term("canary", "canary with known truth")] : "", info.epsilons.length === 1 ? "" : ASSUMED[info.rungs]),
          registryOf(info)),
        h("div", { class: "survey-end" }, term("ladder", "Ladder"), this.ladder, this.age)),
      this.epsilon,
      h("div", { class: "controls" }, this.range.node, this.chooser.node, this.link),
      this.warning, this.empty, this.grid, this.answer?.node,
      h("p", { class: "guarantee" }, info.guarantee));
    this.windowsChart = new WindowsChart(this.chart1.body, {
      picked: (start) => this.pin(start), zoomed: (from, to) => this.range.set({ from, to }), unzoomed: () => this.range.set({}),
    });
    this.historyChart = new HistoryChart(this.chart2.body);
    this.usersChart = new UsersChart(this.chart3.body, { picked: (start) => this.pin(start) });
  }

  buildFigures() {
    const { info } = this;
    const pictured = (name) => () => ({ name: `${info.id}-${name}`, question: info.question });
    const figure = (title, name, rows) => new Figure(title, name, {
      exported: () => ({ name: `${info.id}-${name}`, ...rows() }), pictured: pictured(name), opened: () => this.draw(),
    });
    this.chart1 = figure(["Estimates over ", term("window", "windows")], "windows", () => windowsRows(info, this.store.sorted, this.drawn));
    this.chart1.node.insertBefore(this.legend, this.chart1.body);
    this.chart2 = figure(["One window's ", term("estimate history", "history")], "history", () => historyRows(info, this.current(), this.points(), this.focus));
    this.chart3 = figure(["Devices per ", term("rung", "rung")], "users", () => usersRows(info, this.store.sorted));
    this.cells = new CellFigures(this);
    this.values = new ValuesTable(info, {
      chosen: (index) => this.choose(index), changed: () => this.draw(),
      exported: () => ({ name: `${info.id}-values`, ...valuesRows(info, this.current(), this.listed(this.quantity(this.focus))) }),
    });
  }

  // What is asked for

  /** Follow the address. */
  follow() {
    this.store.setRange(askedRange());
    const missed = (found) => found || this.chooser.missing(state.window);
    this.chooser.missing(null);
    this.store.choose(state.window).then(missed);
    this.changed();
  }

  load() {
    return this.store.load();
  }

  /** Free the charts: they listen to the window's size. */
  leave() {
    for (const chart of [this.windowsChart, this.historyChart, this.usersChart]) chart.destroy();
    this.cells.leave();
    this.answer?.leave();
  }

  hear(window) {
    this.store.hear(window);
  }

  /** The window of all panels: the chosen one; else the newest settled one, once its history is here too. */
  current() {
    const chosen = state.window === null ? undefined : this.store.find(state.window);
    if (chosen) return chosen;
    const { sorted } = this.store;
    const next = newestSettled(sorted);
    if (next === null) return null;
    const held = this.store.windows.get(this.held);
    if (held && held !== next && sorted.includes(held) && this.store.history(next.window_start_ms) === undefined && this.clock() - this.heldAt < WAIT_MS) return held;
    if (this.held !== next.window_start_ms) [this.held, this.heldAt] = [next.window_start_ms, this.clock()];
    else if (this.store.history(this.held) !== undefined) this.heldAt = this.clock();
    return next;
  }

  pin(start) {
    if (start !== null && start !== undefined) go({ window: start });
  }

  choose(index) {
    const value = this.info.values[index];
    go({ value: state.value === value ? null : value });
  }

  // Drawing, at most once per frame

  changed() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      if (this.node.isConnected) this.draw();
    });
  }

  draw() {
    const { sorted } = this.store;
    this.range.draw();
    const window = this.current();
    const none = sorted.length === 0 && window === null;
    this.drawEmpty(none);
    this.grid.hidden = none;
    this.chooser.node.hidden = none;
    this.link.hidden = none;
    const dark = isDark();
    [...this.ladder.children].forEach((item, rung) => {
      item.firstElementChild.style.background = rungColour(rung, this.info.epsilons.length, dark);
    });
    if (none || !this.isNews(window, dark)) return;
    const against = contradictionText(sorted);
    this.warning.hidden = against === "";
    setText(this.warning, against);
    this.rank(window !== null && isSettled(window) ? window : newestSettled(sorted));
    this.chooser.draw(window);
    this.drawWindows(window, dark);
    this.drawHistory(window ?? sorted.at(-1), dark);
    this.drawUsers(window, dark);
    this.drawValues(window, dark);
    this.cells.draw(window, this.listed(this.quantity(this.focus)), dark);
    this.drawLink(window);
  }

  /** Whether anything that is drawn has changed. Times that count down are drawn only for windows that have not settled. */
  isNews(window, dark) {
    const { store, values } = this;
    const figures = [this.chart1, this.chart2, this.chart3, ...this.cells.figures];
    const charts = [this.windowsChart, this.historyChart, this.usersChart];
    const open = window === null || !isSettled(window) ? this.clock() : store.histories.get(window.window_start_ms)?.length;
    const now = [store.sorted, window, open, state.value, state.q, state.window, state.view, values.views.found, values.views.trouble, dark, zoneName(), values.all, ...figures.map(({ details }) => details.open), ...charts.map(({ shape }) => shape)];
    const same = this.before !== undefined && now.every((part, i) => part === this.before[i]);
    this.before = now;
    return !same;
  }

  /** In place of the charts: what is known about why there are none. */
  drawEmpty(none) {
    this.empty.hidden = !none;
    if (!none) return;
    const outcome = this.store.outcome ?? (this.down ? "Redis does not answer" : null);
    const known = outcome === "ok";
    for (const node of [this.empty, this.node]) setAttribute(node, "data-state", outcome === null ? "loading" : known ? "none" : "unknown");
    setText(this.empty, outcome === null ? "Reading the estimates …"
      : !known ? `Unknown: the estimates cannot be read. ${outcome[0].toUpperCase()}${outcome.slice(1)}. The page keeps trying.`
        : this.store.isNewest ? "No estimates yet. They appear a second after the first report is counted."
          : "No window of this range has an estimate. Windows are kept for the survey's retention; choose another range.");
  }

  /** Order the values; keep the colours of those that stay drawn, so that lines do not change colour when ranks do. */
  rank(settled) {
    const asked = state.q.trim().toLowerCase();
    const matches = (label) => label.toLowerCase().includes(asked);
    // Before a window has settled the values keep the order of the survey file: noise is no order.
    const all = this.info.values.map((value, index) => ({ row: settled?.values[index] ?? { value, lower: null }, index })).sort(byLower);
    this.found = asked === "" ? all : all.filter(({ index }) => matches(this.info.values[index]));
    this.order = this.found.length ? this.found : all;
    const chosen = this.info.values.indexOf(state.value);
    // Of the two quantities of a key the share comes first: a mean is of those who have the key.
    // A number and its square have no order: the number, which the survey names first, comes first.
    const apart = this.order.some(({ index }) => !sameScale(this.quantity(index), this.quantity(this.order[0].index)));
    const first = this.order.find(({ index }) => this.quantity(index).kind === "share") ?? (apart ? this.order.find(({ index }) => index === 0) : null) ?? this.order[0];
    this.focus = chosen >= 0 ? chosen : first.index;
    const own = this.quantity(this.focus);
    const most = isYesNo(this.info, settled) ? 1 : VALUES_DRAWN;
    const wanted = most === 1 ? [this.focus] : this.order.filter(({ index }) => sameScale(this.quantity(index), own)).slice(0, most).map(({ index }) => index);
    if (!wanted.includes(this.focus)) wanted[Math.max(0, Math.min(wanted.length, VALUES_DRAWN - 1))] = this.focus;
    const kept = this.drawn.map((index) => (wanted.includes(index) ? index : null));
    for (const index of wanted.sort((a, b) => a - b)) {
      if (kept.includes(index)) continue;
      const free = kept.indexOf(null);
      if (free >= 0) kept[free] = index;
      else kept.push(index);
    }
    this.drawn = kept.filter((index) => index !== null);
  }

  colour(index, dark) {
    const place = this.drawn.indexOf(index);
    return place < 0 ? null : valueColour(place, dark);
  }

  quantity(index) {
    return quantityOf(this.info, index);
  }

  drawWindows(window, dark) {
    const { focus, info, store: { sorted } } = this;
    const quantity = this.quantity(focus);
    const values = this.drawn.map((index) => ({ index, label: spoken(info, index), short: this.names[index], colour: this.colour(index, dark), focused: index === focus }));
    keyed(this.legend, this.drawn, (index) => index,
      (index) => h("button", { type: "button", class: "legend-item", title: info.values[index], on: { click: () => this.choose(index) } },
        h("i", { "aria-hidden": "true" }), h("span", { dir: "auto" }, this.legendNames.get(this.quantity(index).name))),
      (node, index) => {
        node.firstElementChild.style.background = this.colour(index, dark);
        setAttribute(node, "aria-pressed", index === focus);
      });
    this.windowsChart.update({ windows: sorted, values, quantity, stepMs: info.window_step_ms, marked: window?.window_start_ms, dark });
    this.chart1.say(window === null ? waitText(sorted, this.clock())
      : `${isolated(opening(info, focus))}, ${this.named(window)}: ${this.claim(window, quantity)}.${this.complement(window, quantity)}`);
    this.legend.hidden = info.values.length === 1;
    this.chart1.list(() => [["window", ...values.flatMap(({ label }) => [label, "from", "to"])],
      [...sorted].reverse().map((one) => [this.marked(one), ...values.flatMap(({ index }) => {
        const cell = one.values[index];
        return [number(cell.estimate, quantity, halfWidth(cell) ?? 0.01), ...ends(cell, quantity)];
      })])]);
  }

  /** What is said of the highlighted value: with its own band if a person chose it, for all values at once if its rank did. */
  claim(window, quantity) {
    const row = window.values[this.focus];
    const chosen = this.info.values.includes(state.value) || this.info.values.length === 1;
    return chosen ? sentence(window, row, quantity) : sentence(window, atOnce(row), quantity, OF_ALL);
  }

  /** What a yes/no question says about its other answer. */
  complement(window, quantity) {
    if (!isYesNo(this.info, window) || halfWidth(window.values[this.focus]) === null) return "";
    const other = 1 - this.focus;
    return ` So ${isolated(spoken(this.info, other))} ${ends(window.values[other], quantity).join(" to ")}.`;
  }

  /** The history of the window of all panels, for the highlighted value. */
  points(window = this.current()) {
    const history = window === null ? [] : this.store.history(window.window_start_ms) ?? [];
    return history.map((point) => {
      const at = point.values.indexOf(this.focus);
      return { time_ms: point.time_ms, users: point.users_per_rung, estimate: point.estimate[at] ?? null, lower: point.lower[at] ?? null, upper: point.upper[at] ?? null };
    }).sort((a, b) => a.time_ms - b.time_ms);
  }

  drawHistory(window, dark) {
    const { focus, info } = this;
    const start = window.window_start_ms;
    const quantity = this.quantity(focus);
    const history = this.points(window);
    this.historyChart.nowMs = this.clock();
    this.historyChart.update({
      points: history, truth: window.truth?.shares[focus] ?? null, colour: this.colour(focus, dark) ?? valueColour(0, dark), quantity,
      openings: info.opens_ms.map((ms, rung) => (rung ? window.window_end_ms + ms : start)),
      endMs: window.window_end_ms, settledMs: window.settles_ms, epsilons: info.epsilons, dark,
    });
    const known = history.filter((point) => halfWidth(point) !== null);
    const first = known.find((point) => point.time_ms >= window.window_end_ms) ?? known[0];
    const highest = (known.at(-1)?.users ?? []).findLastIndex((users) => users > 0);
    this.chart2.say(known.length > 1 ? `${isolated(opening(info, focus))}, ${this.named(window)}: from ${points(halfWidth(first), quantity)} when it closed to `
      + `${points(halfWidth(known.at(-1)), quantity)} now, with answers up to rung ${highest} of 0 to ${info.epsilons.length - 1}.`
      : history.length > 0 && known.length === 0 ? `${isolated(info.values[focus])} has no history in the ${this.named(window)}: it is kept for the most frequent values.`
        : `The ${this.named(window)} has no history yet.`);
    setAttribute(this.chart2.node, "data-window", start);
    this.chart2.list(() => [["time", "estimate", "from", "to"], [...history].reverse().map((point) =>
      [time(point.time_ms), number(point.estimate, quantity, halfWidth(point) ?? 0.01), ...ends(point, quantity)])]);
  }

  drawUsers(chosen, dark) {
    const { info, store: { sorted } } = this;
    const window = chosen ?? sorted.at(-1);
    this.usersChart.update({ windows: sorted, copies: info.copies ?? 1, rungs: info.epsilons.length, stepMs: info.window_step_ms, marked: chosen?.window_start_ms, dark });
    const parts = window.users_per_rung.map((users, rung) => `${count(devicesOf(info, users))} at epsilon ${epsilonText(window.epsilons[rung])}`);
    const name = this.named(window);
    this.chart3.say(`${name[0].toUpperCase()}${name.slice(1)}: ${plural(devicesOf(info, window.users), "device")}, ${parts.join(", ")}.${window.withdrawn ? ` ${plural(devicesOf(info, window.withdrawn), "device")} withdrew, counted nowhere.` : ""}${info.copies > 1 ? ` Each sends ${info.copies} copies.` : ""}`);
    this.chart3.list(() => [["window", "devices", ...info.epsilons.map((e) => `ε ${epsilonText(e)}`)],
      [...sorted].reverse().map((one) => [this.marked(one), ...[one.users, ...one.users_per_rung].map((users) => count(devicesOf(info, users)))])]);
  }

  /** The values of the table: those that match the search, of the highlighted value's kind. */
  listed(quantity) {
    return this.found.filter(({ index }) => this.quantity(index).kind === quantity.kind);
  }

  drawValues(window, dark) {
    const { focus } = this;
    const quantity = this.quantity(focus);
    setAttribute(this.node, "data-current", window?.window_start_ms ?? null);
    setAttribute(this.node, "data-state", window?.state ?? "none");
    if (window === null) return this.values.wait(this.store.sorted, this.clock());
    const rows = this.listed(quantity).map(({ index }) => ({ row: window.values[index], index }));
    return this.values.update({ window, rows, focus, quantity, colour: (index) => this.colour(index, dark), stepMs: this.info.window_step_ms, now: this.clock() });
  }

  /** The address of what is seen: the range in fixed times, the window and the value by name. */
  drawLink(window) {
    const { sorted } = this.store;
    const [first, last] = [sorted[0] ?? window, sorted.at(-1) ?? window];
    const fixed = state.from === null ? { from: first.window_start_ms, to: last.window_start_ms, last: null } : {};
    setAttribute(this.link, "href", address({ ...state, ...fixed, window: window?.window_start_ms ?? null, value: this.info.values[this.focus] }));
  }

  /** "window of 12:00:00", and why it is not settled if it is not. */
  named(window) {
    const why = openText(window, this.clock());
    return `window of ${time(window.window_start_ms, this.info.window_step_ms, this.clock())}${why ? ` (${why})` : ""}`;
  }

  /** The start of a window for tables of numbers. */
  marked(window) {
    return `${time(window.window_start_ms, this.info.window_step_ms, this.clock())}${isSettled(window) ? "" : " (open)"}`;
  }

  /** A survey without new reports is stale by itself; the others and the page as a whole are not. */
  showHealth(entry) {
    this.down = entry.down;
    setText(this.age, ageText(entry, this.clock()));
    for (const node of [this.age, this.node]) {
      setAttribute(node, "data-stale", entry.state === "stale");
      setAttribute(node, "data-freshness", entry.state);
    }
    this.epsilon.hidden = entry.epsilon === undefined;
    if (entry.epsilon !== undefined) {
      setText(this.proven, epsilonSentence(entry.epsilon));
      setAttribute(this.epsilon, "class", entry.epsilon.exceeded ? "warning" : "proven");
    }
  }
}
