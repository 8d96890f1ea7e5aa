// One survey on the page: charts with a sentence each, and the values sorted by lower bound.

import { api } from "./api.js";
import { HistoryChart, UsersChart, WindowsChart } from "./charts.js";
import { h, keyed, setAttribute, setText } from "./dom.js";
import { count, epsilonText, halfWidth, number, plural, points, sentence, span, time } from "./format.js";
import { rungColour, valueColour } from "./palette.js";
import { isDark } from "./theme.js";
import { ValuesTable } from "./values.js";

const WINDOWS_SHOWN = 60;
const VALUES_DRAWN = 6;
const HOLD_MS = 4000;
const ARRIVAL_MS = 2000;

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
    this.empty = h("p", { class: "card empty" }, "No estimates yet. They appear a second after the first report is counted.");
    this.grid = h("div", { class: "grid", hidden: true }, this.chart1.node, this.values.node, this.chart2.node, this.chart3.node);
    this.node = h("section", { class: "survey", id: info.id, data: { survey: info.id }, "aria-labelledby": `${info.id}-title` },
      h("div", { class: "survey-head" },
        h("div", {}, h("h2", { id: `${info.id}-title` }, info.question),
          h("p", { class: "about" }, h("code", {}, info.id), ` · ${info.mechanism} · windows of ${span(info.window_size_ms)}`,
            info.canary ? " · canary with known truth" : "")),
        h("div", { class: "survey-end" }, ladder, this.age)),
      this.empty, this.grid,
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

  setWindows(windows) {
    for (const window of windows) this.windows.set(window.window_start_ms, window);
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
    const starts = [...this.windows.keys()].sort((a, b) => a - b);
    for (const start of starts.slice(0, -WINDOWS_SHOWN)) {
      if (start === this.pinned) continue;
      this.windows.delete(start);
      this.histories.delete(start);
    }
    this.sorted = [...this.windows.values()].sort((a, b) => a.window_start_ms - b.window_start_ms);
  }

  settledMs(start) {
    const { info } = this;
    return start + info.window_size_ms + info.opens_ms.at(-1) + info.jitter_ms;
  }

  /** The window of the table: hovered, pinned, or the newest whose rungs are all released if that is not too old. */
  current() {
    const chosen = this.windows.get(this.hover ?? this.pinned);
    if (chosen) return chosen;
    const now = this.clock();
    const closed = this.sorted.filter((window) => window.window_end_ms <= now);
    const settled = closed.filter((window) => this.settledMs(window.window_start_ms) + ARRIVAL_MS <= now).at(-1);
    const newest = closed.at(-1) ?? this.sorted.at(-1);
    const near = settled && newest.window_start_ms - settled.window_start_ms <= 6 * this.info.window_step_ms;
    return near ? settled : newest;
  }

  /** The window whose history is shown: follow one until its last rung is released, then go on to a newer one. */
  followed() {
    if (this.pinned !== null && this.windows.has(this.pinned)) return this.windows.get(this.pinned);
    const now = this.clock();
    const held = this.windows.get(this.following);
    if (held && now < this.settledMs(this.following) + HOLD_MS) return held;
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
      // Surveys out of sight are drawn once, so that printing and links find them.
      if (this.visible || !this.drawnOnce) this.draw();
    });
  }

  draw() {
    const window = this.sorted?.length ? this.current() : null;
    this.empty.hidden = window !== null;
    this.grid.hidden = window === null;
    if (window === null) return;
    this.drawnOnce = (this.histories.get(this.followed().window_start_ms)?.length ?? 0) > 0;
    const dark = isDark();
    this.rank(window);
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
  rank(window) {
    this.order = window.values.map((row, index) => ({ row, index })).sort(byLower);
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
    const row = window.values[focus];
    const text = `${row.value}, window of ${time(window.window_start_ms, stepMs)}: ${sentence(window, row, quantity)}.`;
    setText(this.chart1.caption, text);
    setAttribute(this.chart1.body, "aria-label", text);
    if (this.chart1.details.open) {
      this.chart1.numbers.replaceChildren(table(["window", ...values.flatMap(({ label }) => [label, "from", "to"])],
        [...this.sorted].reverse().map((one) => [time(one.window_start_ms, stepMs), ...values.flatMap(({ index }) => {
          const cell = one.values[index];
          const half = halfWidth(cell) ?? 0.01;
          return [cell.estimate, cell.lower, cell.upper].map((value) => number(value, quantity, half));
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
      openings, endMs: window.window_end_ms, settledMs: this.settledMs(start), epsilons: info.epsilons, dark,
    });
    setAttribute(this.follow, "aria-pressed", this.pinned === null);
    const known = history.filter((point) => point.lower !== null && point.upper !== null);
    const half = (point) => (point.upper - point.lower) / 2;
    const first = known.find((point) => point.time_ms >= window.window_end_ms) ?? known[0];
    const highest = (known.at(-1)?.users ?? []).findLastIndex((users) => users > 0);
    const when = time(start, info.window_step_ms);
    let text = `The window of ${when} has no history yet.`;
    if (known.length > 1) {
      text = `${info.values[focus]}, window of ${when}: from ${points(half(first), quantity)} when it closed to `
        + `${points(half(known.at(-1)), quantity)} now, with answers up to rung ${highest} of 0 to ${info.epsilons.length - 1}.`;
    }
    setText(this.chart2.caption, text);
    setAttribute(this.chart2.body, "aria-label", text);
    setAttribute(this.chart2.node, "data-window", start);
    if (this.chart2.details.open) {
      this.chart2.numbers.replaceChildren(table(["time", "estimate", "from", "to"], [...history].reverse().map((point) => {
        const width = point.lower === null || point.upper === null ? 0.01 : half(point);
        return [time(point.time_ms), ...[point.estimate, point.lower, point.upper].map((value) => number(value, quantity, width))];
      })));
    }
  }

  drawUsers(window, dark) {
    const rungs = this.info.epsilons.length;
    const stepMs = this.info.window_step_ms;
    this.usersChart.update({ windows: this.sorted, rungs, stepMs, dark });
    const parts = window.users_per_rung.map((users, rung) => `${count(users)} at epsilon ${epsilonText(window.epsilons[rung])}`);
    const text = `Window of ${time(window.window_start_ms, stepMs)}: ${plural(window.users, "device")}, ${parts.join(", ")}.`;
    setText(this.chart3.caption, text);
    setAttribute(this.chart3.body, "aria-label", text);
    if (this.chart3.details.open) {
      this.chart3.numbers.replaceChildren(table(["window", "devices", ...this.info.epsilons.map((e) => `ε ${epsilonText(e)}`)],
        [...this.sorted].reverse().map((one) => [time(one.window_start_ms, stepMs), count(one.users), ...one.users_per_rung.map(count)])));
    }
  }

  drawValues(window, focus, dark) {
    const quantity = this.quantity(focus);
    const rows = this.order.filter(({ index }) => this.quantity(index) === quantity);
    this.values.update({ window, rows, focus, quantity, colour: (index) => this.colour(index, dark), stepMs: this.info.window_step_ms });
    setAttribute(this.node, "data-current", window.window_start_ms);
  }

  showAge(lastMs, stale) {
    setText(this.age, lastMs === null || lastMs === undefined ? "no estimates" : `updated ${span(this.clock() - lastMs)} ago`);
    setAttribute(this.age, "data-stale", Boolean(stale));
  }
}
