// One survey on the page: charts with a sentence each, and the values of the newest settled window.

import { api } from "./api.js";
import { HistoryChart, UsersChart, WindowsChart } from "./charts.js";
import { h, keyed, setAttribute, setText } from "./dom.js";
import { count, ends, epsilonText, halfWidth, number, plural, points, sentence, span, time } from "./format.js";
import { rungColour, valueColour } from "./palette.js";
import { contradictionText, isSettled, newer, newestSettled, openText, waitText } from "./settled.js";
import { isDark } from "./theme.js";
import { ValuesTable } from "./values.js";

const SETTLED_SHOWN = 60;
const WINDOWS_ASKED = 500;
const VALUES_DRAWN = 6;
const HOLD_MS = 2000;

const ASSUMED = { any: " · rungs may depend on values", independent: " · rungs assumed independent of values" };

const byLower = (a, b) => (b.row.lower ?? -Infinity) - (a.row.lower ?? -Infinity) || a.index - b.index;

function figure(title, name, extra = null) {
  const body = h("div", { class: `plot plot-${name}`, role: "img" });
  const caption = h("figcaption", { class: "sentence" });
  const numbers = h("div", { class: "numbers-body" });
  const details = h("details", { class: "numbers" }, h("summary", {}, "Numbers"), numbers);
  const node = h("figure", { class: `card figure figure-${name}`, data: { chart: name } },
    h("div", { class: "figure-head" }, h("h3", {}, title), extra), body, h("div", { class: "figure-foot" }, caption, details));
  return { node, body, caption, details, numbers };
}

function table(head, rows) {
  return h("table", {}, h("thead", {}, h("tr", {}, head.map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((text) => h("td", {}, String(text)))))));
}

export class SurveyView {
  constructor(info, clock) {
    this.info = info;
    this.clock = clock;
    this.windows = new Map();
    this.histories = new Map();
    this.focus = null;
    this.pinned = null;
    this.following = null;
    this.hover = null;
    this.order = [];
    this.drawn = [];
    this.sorted = [];
    this.build();
  }

  build() {
    const { info } = this;
    this.age = h("span", { class: "chip", data: { role: "age" } });
    const ladder = h("ol", { class: "ladder", "aria-label": "Rungs and their epsilon" },
      info.epsilons.map((epsilon, rung) => h("li", { data: { rung } }, h("i", { "aria-hidden": "true" }), `ε ${epsilonText(epsilon)}`)));
    this.ladder = ladder;
    this.legend = h("div", { class: "legend", role: "group", "aria-label": "Values drawn; choose one to highlight it" });
    this.chart1 = figure("Estimates over windows", "windows");
    this.chart1.node.insertBefore(this.legend, this.chart1.body);
    const older = h("button", { type: "button", class: "icon-button", "aria-label": "Older window", on: { click: () => this.step(-1) } }, "‹");
    const newer = h("button", { type: "button", class: "icon-button", "aria-label": "Newer window", on: { click: () => this.step(1) } }, "›");
    this.follow = h("button", { type: "button", class: "small-button", "aria-pressed": "true", on: { click: () => this.unpin() } }, "follow");
    this.chart2 = figure("One window's history", "history", h("div", { class: "buttons" }, older, newer, this.follow));
    this.chart3 = figure("Users per rung", "users");
    this.values = new ValuesTable(info, { chosen: (index) => this.choose(index), changed: () => this.draw() });
    this.warning = h("p", { class: "warning", role: "status", hidden: true });
    this.empty = h("p", { class: "card empty" }, "No estimates yet. They appear a second after the first report is counted.");
    this.grid = h("div", { class: "grid", hidden: true }, this.chart1.node, this.values.node, this.chart2.node, this.chart3.node);
    this.node = h("section", { class: "survey", id: info.id, data: { survey: info.id }, "aria-labelledby": `${info.id}-title` },
      h("div", { class: "survey-head" },
        h("div", {}, h("h2", { id: `${info.id}-title` }, info.question),
          h("p", { class: "about" }, h("code", {}, info.id), ` · ${info.mechanism} · windows of ${span(info.window_size_ms)}`,
            info.canary ? " · canary with known truth" : "", info.epsilons.length === 1 ? "" : ASSUMED[info.rungs])),
        h("div", { class: "survey-end" }, ladder, this.age)),
      this.warning, this.empty, this.grid,
      h("p", { class: "guarantee" }, info.guarantee));
    this.windowsChart = new WindowsChart(this.chart1.body, { hovered: (start) => this.hovered(start), picked: (start) => this.pin(start) });
    this.historyChart = new HistoryChart(this.chart2.body);
    this.usersChart = new UsersChart(this.chart3.body, { hovered: (start) => this.hovered(start) });
    for (const part of [this.chart1, this.chart2, this.chart3]) part.details.addEventListener("toggle", () => this.draw());
    this.visible = true;
    new IntersectionObserver(([entry]) => {
      this.visible = entry.isIntersecting;
      if (this.visible) this.draw();
    }, { rootMargin: "200px" }).observe(this.node);
  }

  // Data

  /** Request the windows: as many settled ones as are shown, and all newer ones. */
  async load() {
    const { id, window_step_ms: step, settles_after_ms: settles } = this.info;
    const limit = Math.min(WINDOWS_ASKED, SETTLED_SHOWN + Math.ceil(settles / step));
    const { windows, truncated } = await api.windows(id, limit);
    if (truncated && newestSettled(windows) === null) {
      // More windows are open at once than one answer holds.
      const latest = Math.max(0, Math.floor(this.clock() - settles));
      windows.push(...(await api.windows(id, SETTLED_SHOWN, latest)).windows);
    }
    for (const window of windows) this.windows.set(window.window_start_ms, newer(this.windows.get(window.window_start_ms), window));
    this.trim();
    this.changed();
  }

  putWindow(window) {
    const known = this.windows.get(window.window_start_ms);
    this.windows.set(window.window_start_ms, window);
    const history = this.histories.get(window.window_start_ms);
    if (history && (!known || known.computed_ms !== window.computed_ms)) history.push(this.point(window));
    this.trim();
    this.changed();
  }

  point(window) {
    const columns = { time_ms: window.computed_ms, users_per_rung: window.users_per_rung, values: [], estimate: [], lower: [], upper: [] };
    window.values.forEach((row, index) => {
      columns.values.push(index);
      for (const name of ["estimate", "lower", "upper"]) columns[name].push(row[name]);
    });
    return columns;
  }

  trim() {
    this.sorted = [...this.windows.values()].sort((a, b) => a.window_start_ms - b.window_start_ms);
    const settled = this.sorted.filter(isSettled);
    const old = [...settled.slice(0, -SETTLED_SHOWN), ...this.sorted.filter((window) => !isSettled(window)).slice(0, -WINDOWS_ASKED)];
    for (const { window_start_ms: start } of old) {
      if (start === this.pinned) continue;
      this.windows.delete(start);
      this.histories.delete(start);
    }
    if (old.length) this.sorted = this.sorted.filter((window) => this.windows.has(window.window_start_ms));
  }

  /** The window of the table: hovered, pinned, or the newest settled one; null if there is none. */
  current() {
    return this.windows.get(this.hover ?? this.pinned) ?? newestSettled(this.sorted);
  }

  /** The window whose history is shown: follow one until its last rung is released, then go on to a newer one. */
  followed() {
    if (this.pinned !== null && this.windows.has(this.pinned)) return this.windows.get(this.pinned);
    const now = this.clock();
    const held = this.windows.get(this.following);
    if (held && now < held.settles_ms + HOLD_MS) return held;
    const climbing = this.sorted.filter((window) => window.users_per_rung.slice(1).some((users) => users > 0)).at(-1);
    const next = climbing ?? this.sorted.at(-1);
    if (held && next !== held && !this.histories.get(next.window_start_ms)?.length) {
      // Go on once the next one has points.
      this.loadHistory(next.window_start_ms);
      return held;
    }
    this.following = next?.window_start_ms ?? null;
    return next;
  }

  async loadHistory(start) {
    if (start === null || this.histories.has(start)) return;
    this.histories.set(start, []);
    try {
      const history = await api.history(this.info.id, start);
      this.histories.set(start, history.points);
      this.changed();
    } catch {
      this.histories.delete(start);
    }
  }

  // Interaction

  hovered(start) {
    if (start === this.hover) return;
    this.hover = start ?? null;
    this.changed();
  }

  pin(start) {
    if (start === null || start === undefined) return;
    this.pinned = start;
    this.changed();
  }

  unpin() {
    this.pinned = null;
    this.changed();
  }

  step(direction) {
    const shown = this.followed()?.window_start_ms;
    const at = this.sorted.findIndex((window) => window.window_start_ms === shown);
    const next = this.sorted[at + direction];
    if (next) this.pin(next.window_start_ms);
  }

  choose(index) {
    this.focus = this.focus === index ? null : index;
    this.changed();
  }

  // Drawing, at most once per frame

  changed() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      // Surveys out of sight are drawn until they have a headline and a history, so that printing and links find them.
      if (this.visible || !this.drawnOnce) this.draw();
    });
  }

  draw() {
    this.empty.hidden = this.sorted.length > 0;
    this.grid.hidden = this.sorted.length === 0;
    if (this.sorted.length === 0) return;
    const against = contradictionText(this.sorted);
    this.warning.hidden = against === "";
    setText(this.warning, against);
    const window = this.current();
    this.drawnOnce = window !== null && (this.histories.get(this.followed().window_start_ms)?.length ?? 0) > 0;
    const dark = isDark();
    this.rank(window !== null && isSettled(window) ? window : newestSettled(this.sorted));
    const focus = this.focus ?? this.order[0].index;
    this.drawWindows(window, focus, dark);
    this.drawHistory(focus, dark);
    this.drawUsers(window, dark);
    this.drawValues(window, focus, dark);
    [...this.ladder.children].forEach((item, rung) => {
      item.firstElementChild.style.background = rungColour(rung, this.info.epsilons.length, dark);
    });
  }

  /** Order the values; keep the colours of those that stay drawn, so that lines do not change colour when ranks do. */
  rank(settled) {
    // Before a window has settled the values keep the order of the survey file: noise is no order.
    this.order = this.info.values.map((value, index) => ({ row: settled?.values[index] ?? { value, lower: null }, index })).sort(byLower);
    const wanted = this.order.slice(0, VALUES_DRAWN).map(({ index }) => index);
    if (this.focus !== null && !wanted.includes(this.focus)) wanted[wanted.length - 1] = this.focus;
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
    return this.info.quantities[index] ?? "share";
  }

  drawWindows(window, focus, dark) {
    const quantity = this.quantity(focus);
    const values = this.drawn.filter((index) => this.quantity(index) === quantity)
      .map((index) => ({ index, label: this.info.values[index], colour: this.colour(index, dark), focused: index === focus }));
    keyed(this.legend, this.drawn, (index) => index,
      (index) => h("button", { type: "button", class: "legend-item", on: { click: () => this.choose(index) } }, h("i", { "aria-hidden": "true" }), this.info.values[index]),
      (node, index) => {
        node.firstElementChild.style.background = this.colour(index, dark);
        setAttribute(node, "aria-pressed", index === focus);
      });
    const stepMs = this.info.window_step_ms;
    this.windowsChart.update({ windows: this.sorted, values, quantity, stepMs, marked: this.followed()?.window_start_ms, dark });
    const text = window === null ? waitText(this.sorted, this.clock())
      : `${this.info.values[focus]}, ${this.named(window)}: ${sentence(window, window.values[focus], quantity)}.`;
    setText(this.chart1.caption, text);
    setAttribute(this.chart1.body, "aria-label", text);
    if (this.chart1.details.open) {
      this.chart1.numbers.replaceChildren(table(["window", ...values.flatMap(({ label }) => [label, "from", "to"])],
        [...this.sorted].reverse().map((one) => [this.marked(one), ...values.flatMap(({ index }) => {
          const cell = one.values[index];
          return [number(cell.estimate, quantity, halfWidth(cell) ?? 0.01), ...ends(cell, quantity)];
        })])));
    }
  }

  drawHistory(focus, dark) {
    const window = this.followed();
    const start = window.window_start_ms;
    this.loadHistory(start);
    const quantity = this.quantity(focus);
    const history = (this.histories.get(start) ?? []).map((point) => {
      const at = point.values.indexOf(focus);
      return { time_ms: point.time_ms, users: point.users_per_rung, estimate: point.estimate[at] ?? null, lower: point.lower[at] ?? null, upper: point.upper[at] ?? null };
    }).sort((a, b) => a.time_ms - b.time_ms);
    const { info } = this;
    const openings = info.opens_ms.map((ms, rung) => (rung ? window.window_end_ms + ms : start));
    this.historyChart.nowMs = this.clock();
    this.historyChart.update({
      points: history, truth: window.truth?.shares[focus] ?? null, colour: this.colour(focus, dark) ?? valueColour(0, dark), quantity,
      openings, endMs: window.window_end_ms, settledMs: window.settles_ms, epsilons: info.epsilons, dark,
    });
    setAttribute(this.follow, "aria-pressed", this.pinned === null);
    const known = history.filter((point) => halfWidth(point) !== null);
    const first = known.find((point) => point.time_ms >= window.window_end_ms) ?? known[0];
    const highest = (known.at(-1)?.users ?? []).findLastIndex((users) => users > 0);
    let text = `The ${this.named(window)} has no history yet.`;
    if (known.length > 1) {
      text = `${info.values[focus]}, ${this.named(window)}: from ${points(halfWidth(first), quantity)} when it closed to `
        + `${points(halfWidth(known.at(-1)), quantity)} now, with answers up to rung ${highest} of 0 to ${info.epsilons.length - 1}.`;
    }
    setText(this.chart2.caption, text);
    setAttribute(this.chart2.body, "aria-label", text);
    setAttribute(this.chart2.node, "data-window", start);
    if (this.chart2.details.open) {
      this.chart2.numbers.replaceChildren(table(["time", "estimate", "from", "to"], [...history].reverse().map((point) => {
        return [time(point.time_ms), number(point.estimate, quantity, halfWidth(point) ?? 0.01), ...ends(point, quantity)];
      })));
    }
  }

  drawUsers(chosen, dark) {
    const window = chosen ?? this.sorted.at(-1);
    const rungs = this.info.epsilons.length;
    const stepMs = this.info.window_step_ms;
    this.usersChart.update({ windows: this.sorted, rungs, stepMs, dark });
    const parts = window.users_per_rung.map((users, rung) => `${count(users)} at epsilon ${epsilonText(window.epsilons[rung])}`);
    const name = this.named(window);
    const text = `${name[0].toUpperCase()}${name.slice(1)}: ${plural(window.users, "device")}, ${parts.join(", ")}.`;
    setText(this.chart3.caption, text);
    setAttribute(this.chart3.body, "aria-label", text);
    if (this.chart3.details.open) {
      this.chart3.numbers.replaceChildren(table(["window", "devices", ...this.info.epsilons.map((e) => `ε ${epsilonText(e)}`)],
        [...this.sorted].reverse().map((one) => [this.marked(one), count(one.users), ...one.users_per_rung.map(count)])));
    }
  }

  drawValues(window, focus, dark) {
    const quantity = this.quantity(focus);
    setAttribute(this.node, "data-current", window?.window_start_ms ?? null);
    setAttribute(this.node, "data-state", window?.state ?? "none");
    if (window === null) return this.values.wait(this.sorted, this.clock());
    const rows = this.order.filter(({ index }) => this.quantity(index) === quantity).map(({ index }) => ({ row: window.values[index], index }));
    return this.values.update({ window, rows, focus, quantity, colour: (index) => this.colour(index, dark), stepMs: this.info.window_step_ms, now: this.clock() });
  }

  /** "window of 12:00:00", and why it is not settled if it is not. */
  named(window) {
    const why = openText(window, this.clock());
    return `window of ${time(window.window_start_ms, this.info.window_step_ms)}${why ? ` (${why})` : ""}`;
  }

  /** The start of a window for tables of numbers. */
  marked(window) {
    return `${time(window.window_start_ms, this.info.window_step_ms)}${isSettled(window) ? "" : " (open)"}`;
  }

  /** A survey without new reports is stale by itself; the others and the page as a whole are not. */
  showAge(lastMs, stale) {
    const age = lastMs === null || lastMs === undefined ? null : span(this.clock() - lastMs);
    setText(this.age, age === null ? "no estimates" : stale ? `stale · no new reports for ${age}` : `updated ${age} ago`);
    setAttribute(this.age, "data-stale", Boolean(stale));
    setAttribute(this.node, "data-stale", Boolean(stale));
  }
}
