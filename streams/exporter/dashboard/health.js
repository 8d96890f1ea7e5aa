// The health tiles, the banner for stale numbers, and the list of alerts.

import { h, keyed, setAttribute, setText, svg } from "./dom.js";
import { compact, count, plural, span, time } from "./format.js";

const MARKS = { ok: "✓", warn: "!", bad: "✕", none: "·" };

function tile(name, title) {
  const mark = h("span", { class: "mark", "aria-hidden": "true" });
  const value = h("strong", { class: "tile-value" });
  const note = h("span", { class: "tile-note" });
  const node = h("div", { class: "card tile", data: { tile: name } }, h("span", { class: "tile-title" }, mark, title), value, note);
  return { node, mark, value, note };
}

function show(part, state, value, note) {
  setAttribute(part.node, "data-state", state);
  setText(part.mark, MARKS[state]);
  setText(part.value, value);
  setText(part.note, note);
}

export class HealthView {
  constructor(container, banner, live, clock) {
    this.clock = clock;
    this.banner = banner;
    this.live = live;
    this.health = null;
    this.connected = false;
    this.tiles = {
      rate: tile("rate", "Reports per second"),
      lag: tile("lag", "Consumer lag"),
      rejects: tile("rejects", "Rejected"),
      age: tile("age", "Last estimate"),
      canary: tile("canary", "Canary"),
      alerts: tile("alerts", "Alerts"),
    };
    this.line = svg("polyline", { class: "spark-line" });
    this.area = svg("polygon", { class: "spark-area" });
    this.tiles.rate.node.append(svg("svg", { class: "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true" }, this.area, this.line));
    container.append(...Object.values(this.tiles).map((part) => part.node));
    this.setAlerts({ source: "estimates", alerts: [] });
  }

  setHealth(health) {
    this.health = health;
    this.draw();
  }

  setConnected(connected, reason = null) {
    this.connected = connected;
    this.reason = reason;
    if (!connected && this.lostAt === undefined) this.lostAt = this.clock();
    if (connected) this.lostAt = undefined;
    this.draw();
  }

  setAlerts({ source, alerts }) {
    const firing = alerts.filter((alert) => alert.state === "firing").length;
    const pending = alerts.filter((alert) => alert.state === "pending").length;
    const part = this.tiles.alerts;
    if (source === "unreachable") show(part, "warn", "?", "Prometheus does not answer");
    else if (firing) show(part, "bad", count(firing), pending ? `firing, ${pending} pending` : "firing");
    else if (pending) show(part, "warn", count(pending), "pending");
    else show(part, alerts.length ? "ok" : "none", "0", alerts.length ? `firing, of ${plural(alerts.length, "rule")}` : "no rules");
  }

  draw() {
    const { health, tiles } = this;
    const now = this.clock();
    const state = !this.connected ? "offline" : health === null ? "connecting" : health.status === "ok" ? "live" : health.status;
    setAttribute(this.live, "data-state", state);
    setText(this.live, { offline: "offline", connecting: "connecting", live: "live", stale: "stale", down: "no store" }[state]);
    this.drawBanner(state, now);
    if (health === null) return;
    const rate = health.reports_per_second;
    show(tiles.rate, rate ? "ok" : "none", compact(rate), `${compact(health.reports.applied)} counted`);
    this.spark(health.rates);
    const live = health.workers.filter((worker) => worker.alive).length;
    const workers = live ? plural(live, "worker") : "no worker";
    const lag = health.lag_records;
    show(tiles.lag, live === 0 ? (health.last_estimate_ms === null ? "none" : "bad") : lag > 10_000 ? "warn" : "ok",
      lag === null ? "–" : compact(lag), lag === null ? workers : `records behind, ${workers}`);
    const reasons = Object.entries(health.rejected).sort((a, b) => b[1] - a[1]);
    const rejected = reasons.reduce((sum, [, amount]) => sum + amount, 0);
    const conflicts = health.reports.conflict;
    const shown = reasons.slice(0, 3).map(([reason, amount]) => `${reason} ${compact(amount)}`);
    if (conflicts) shown.push(`conflicting ${compact(conflicts)}`);
    show(tiles.rejects, health.rejected_per_second ? "bad" : rejected || conflicts ? "warn" : "ok", compact(rejected),
      shown.length ? shown.join(", ") : "no dead letters");
    const last = health.last_estimate_ms;
    const p50 = health.workers.find((worker) => worker.alive && worker.latency_p50_seconds !== null)?.latency_p50_seconds;
    show(tiles.age, last === null ? "none" : health.status === "ok" ? "ok" : "bad", last === null ? "none" : span(now - last),
      last === null ? "no reports counted yet" : p50 !== undefined ? `ago; device to estimate ${p50.toFixed(1)} s` : "ago");
    const canary = health.canary;
    if (canary === null) show(tiles.canary, "none", "–", "no settled canary window yet");
    else {
      const wrong = Math.abs(canary.z) > canary.limit;
      show(tiles.canary, wrong ? "bad" : "ok", `${canary.z < 0 ? "−" : "+"}${Math.abs(canary.z).toFixed(1)} σ`,
        wrong ? `out of calibration at ${canary.value}` : `from the truth, limit ${canary.limit.toFixed(1)}`);
    }
  }

  drawBanner(state, now) {
    let text = "";
    if (state === "offline" && this.lostAt !== undefined && now - this.lostAt > 1500) {
      text = `The exporter has not answered for ${span(now - this.lostAt)}. The numbers are at least that old; the page keeps trying.`;
    } else if (state === "stale" || state === "down") {
      text = this.health.reasons.join(" ");
      const last = this.health.last_estimate_ms;
      if (last !== null) text += ` The last estimate is from ${time(last)}.`;
    }
    this.banner.hidden = text === "";
    setText(this.banner, text);
    document.body.classList.toggle("is-stale", text !== "");
  }

  spark(rates) {
    if (rates.length < 2) return;
    const most = Math.max(...rates, 1);
    const step = 100 / (rates.length - 1);
    const dots = rates.map((rate, i) => `${(i * step).toFixed(2)},${(28 - (25 * rate) / most).toFixed(2)}`);
    setAttribute(this.line, "points", dots.join(" "));
    setAttribute(this.area, "points", `0,30 ${dots.join(" ")} 100,30`);
  }
}

export class AlertsView {
  constructor(section, names) {
    this.section = section;
    this.names = names;
    this.list = h("ul", { class: "alert-list" });
    this.note = h("p", { class: "sentence" });
    section.append(h("h2", {}, "Alerts"), this.list, this.note);
  }

  set({ source, alerts }) {
    this.section.hidden = alerts.length === 0 && source !== "unreachable";
    const key = (alert) => [alert.name, alert.survey, alert.value, alert.window].join("\n");
    keyed(this.list, alerts, key, (alert) => this.make(alert), (node, alert) => {
      setAttribute(node, "data-state", alert.state);
      setText(node.parts.state, alert.state);
      setText(node.parts.text, alert.summary);
      setText(node.parts.since, alert.since_ms === null ? "" : `since ${time(alert.since_ms)}`);
    });
    setText(this.note, {
      prometheus: "States from Prometheus. Alerts on values read always-valid bounds, so that repeated looks do not raise the false-alarm rate.",
      estimates: "Evaluated on the stored always-valid bounds; set THAW_PROMETHEUS to show the states of Prometheus.",
      unreachable: "Prometheus does not answer; its alerts are unknown.",
    }[source]);
  }

  make(alert) {
    const parts = { state: h("span", { class: "alert-state" }), text: h("span", { class: "alert-text" }), since: h("span", { class: "alert-since" }) };
    const where = [this.names(alert.survey), alert.value, alert.window && `window ${alert.window}`].filter(Boolean).join(" · ");
    const node = h("li", {}, parts.state, h("strong", {}, alert.name), h("span", { class: "alert-where" }, where), parts.text, parts.since);
    node.parts = parts;
    return node;
  }
}
