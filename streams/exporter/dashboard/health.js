// The health tiles and the banner. What is not known looks unknown: neither a zero nor green.

import { h, setAttribute, setText, svg } from "./dom.js";
import { compact, count, plural, span } from "./format.js";
import { term } from "./help.js";
import { epsilonNote } from "./surveystate.js";
import { time } from "./zone.js";

const MARKS = { ok: "✓", warn: "!", bad: "✕", none: "·", unknown: "?" };
const STATES = { ok: "good", warn: "warning", bad: "bad", none: "no data", unknown: "unknown" };
const LIVE = { offline: "offline", connecting: "connecting", live: "live", stale: "stale", down: "no store" };

function tile(name, title) {
  const mark = h("span", { class: "mark", role: "img" });
  const value = h("strong", { class: "tile-value" });
  const note = h("span", { class: "tile-note" });
  const node = h("div", { class: "card tile", data: { tile: name } }, h("span", { class: "tile-title" }, mark, h("span", {}, title)), value, note);
  return { node, mark, value, note };
}

function show(part, state, value, note) {
  setAttribute(part.node, "data-state", state);
  setText(part.mark, MARKS[state]);
  setAttribute(part.mark, "aria-label", STATES[state]);
  setText(part.value, value);
  setText(part.note, note);
}

/** Each tile as [state, value, note] from a health whose store is up. */
const TILES = {
  rate: (health) => [health.reports_per_second ? "ok" : "none", compact(health.reports_per_second), `${compact(health.reports.applied)} counted`],
  lag({ lag_seconds: lag, lag_limit_seconds: limit, lag_records: records }) {
    const unread = records === null ? "" : `, ${plural(records, "record")} unread`;
    if (lag === null) return ["unknown", "?", `not known${unread}`];
    return [limit !== null && lag > limit ? "bad" : "ok", span(1000 * lag), limit === null ? "behind" : `behind, limit ${span(1000 * limit)}${unread}`];
  },
  workers({ workers, workers_alive: alive, workers_dead: dead, last_estimate_ms: last, kafka }) {
    const names = workers.filter((worker) => !worker.alive).map((worker) => worker.name);
    const broker = kafka === "down" ? "Kafka does not answer" : kafka === "unknown" ? "Kafka: not known" : "Kafka answers";
    if (!alive) return [dead || last !== null ? "bad" : "none", "0", dead ? `no heartbeat: ${names.join(", ")}` : "no worker has run yet"];
    const silent = `no heartbeat: ${names.join(", ")}${kafka === "down" ? `; ${broker}` : ""}`;
    if (dead) return [kafka === "down" ? "bad" : "warn", `${alive} of ${alive + dead}`, silent];
    return [kafka === "down" ? "bad" : "ok", count(alive), `${plural(alive, "worker")}, ${broker}`];
  },
  rejects({ rejected, reports, rejected_per_second: rate }) {
    const reasons = Object.entries(rejected).sort((a, b) => b[1] - a[1]);
    const total = reasons.reduce((sum, [, amount]) => sum + amount, 0);
    const shown = reasons.slice(0, 3).map(([reason, amount]) => `${reason} ${compact(amount)}`);
    if (reports.conflict) shown.push(`conflicting ${compact(reports.conflict)}`);
    return [rate ? "bad" : total || reports.conflict ? "warn" : "ok", compact(total), shown.length ? shown.join(", ") : "no dead letters"];
  },
  age({ last_estimate_ms: last, status, workers }, now) {
    if (last === null) return ["none", "none", "no reports counted yet"];
    const p50 = workers.find((worker) => worker.alive && worker.latency_p50_seconds !== null)?.latency_p50_seconds;
    return [status === "ok" ? "ok" : "bad", span(now - last), p50 === undefined ? "ago" : `ago; device to estimate ${p50.toFixed(1)} s`];
  },
  canary({ canary, epsilon_audits: audits }) {
    const audit = audits.find(({ exceeded }) => exceeded) ?? audits[0];
    const proven = audit === undefined ? "" : `; ${epsilonNote(audit)}`;
    if (canary === null) return [audit?.exceeded ? "bad" : "none", "–", `no settled canary window yet${proven}`];
    const wrong = Math.abs(canary.z) > canary.limit;
    return [wrong || audit?.exceeded ? "bad" : "ok", `${canary.z < 0 ? "−" : "+"}${Math.abs(canary.z).toFixed(1)} σ`,
      `${wrong ? `out of calibration at ${canary.value}` : `from the truth, limit ${canary.limit.toFixed(1)}`}${proven}`];
  },
};

export class HealthView {
  constructor(container, { banner, notice, live }, clock) {
    Object.assign(this, { clock, banner, notice, live });
    this.health = null;
    this.known = null;
    this.connected = false;
    this.tiles = {
      rate: tile("rate", [term("report", "Reports"), " per second"]),
      lag: tile("lag", ["Estimates behind"]),
      workers: tile("workers", [term("heartbeat", "Workers")]),
      rejects: tile("rejects", [term("dead letter", "Rejected")]),
      age: tile("age", ["Last ", term("estimate", "estimate")]),
      canary: tile("canary", [term("canary", "Canary")]),
      alerts: tile("alerts", [term("always-valid bound", "Alerts")]),
    };
    this.line = svg("polyline", { class: "spark-line" });
    this.area = svg("polygon", { class: "spark-area" });
    this.tiles.rate.node.append(svg("svg", { class: "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true" }, this.area, this.line));
    container.append(...Object.values(this.tiles).map((part) => part.node));
    this.alerts = null;
    this.draw();
  }

  setHealth(health) {
    this.health = health;
    if (health.store === "up") this.known = health;
    this.draw();
  }

  setConnected(connected) {
    this.connected = connected;
    if (!connected && this.lostAt === undefined) this.lostAt = this.clock();
    if (connected) this.lostAt = undefined;
    this.draw();
  }

  setAlerts(alerts) {
    this.alerts = alerts;
    this.draw();
  }

  /** Why the numbers are not those of now; empty if they are. */
  unknown() {
    if (this.health === null) return "not known yet";
    if (!this.connected) return "exporter does not answer";
    return this.health.store === "down" ? "Redis does not answer" : this.health.store === "unknown" ? "not read yet" : "";
  }

  draw() {
    const { health, tiles } = this;
    const now = this.clock();
    const state = !this.connected ? (this.health === null && this.lostAt === undefined ? "connecting" : "offline")
      : health === null || health.store === "unknown" ? "connecting" : health.status === "ok" ? "live" : health.status;
    setAttribute(this.live, "data-state", state);
    setText(this.live, LIVE[state]);
    this.drawBanner(state, now);
    const why = this.unknown();
    for (const [name, read] of Object.entries(TILES)) {
      const part = tiles[name];
      if (this.known === null) show(part, "unknown", "?", why);
      else if (why === "") show(part, ...read(health, now));
      else show(part, "unknown", read(this.known, this.known.now_ms)[1], `at ${time(this.known.now_ms)}; now unknown`);
    }
    this.drawAlerts(why);
    if (health?.store === "up") this.spark(health.rates);
  }

  drawAlerts(why) {
    const part = this.tiles.alerts;
    const { source, alerts } = this.alerts ?? { source: null, alerts: [] };
    const firing = alerts.filter((alert) => alert.state === "firing").length;
    const pending = alerts.filter((alert) => alert.state === "pending").length;
    if (source === "unreachable") show(part, "unknown", "?", "Prometheus does not answer");
    else if (source === null || (why !== "" && (source !== "prometheus" || !this.connected))) show(part, "unknown", firing && this.known !== null ? count(firing) : "?", why || "not known yet");
    else if (firing) show(part, "bad", count(firing), pending ? `firing, ${pending} pending` : "firing");
    else if (pending) show(part, "warn", count(pending), "pending");
    else show(part, alerts.length ? "ok" : "none", "0", alerts.length ? `firing, of ${plural(alerts.length, "rule")}` : "no rules");
  }

  drawBanner(state, now) {
    let text = "";
    if (state === "offline" && this.lostAt !== undefined && now - this.lostAt > 1500) {
      text = `The exporter has not answered for ${span(now - this.lostAt)}. ${this.known === null ? "Nothing is known yet" : "The numbers are at least that old"}; the page keeps trying.`;
    } else if (state === "stale" || state === "down") {
      text = this.health.reasons.join(" ");
      const last = this.health.last_estimate_ms;
      if (last !== null) text += ` The last estimate is from ${time(last, 1000, now)}.`;
      else if (state === "down") text += this.known === null ? " Until it does, nothing is known." : ` The page shows what was read at ${time(this.known.now_ms, 1000, now)}.`;
    }
    this.banner.hidden = text === "";
    setText(this.banner, text);
    document.body.classList.toggle("is-stale", text !== "");
    const warnings = state === "offline" || !this.health ? [] : this.health.warnings;
    this.notice.hidden = warnings.length === 0;
    setText(this.notice, warnings.join(" "));
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
