// The list of alerts: firing and pending ones with a link to their runbook and their survey, quiet rules folded away.

import { h, keyed, setAttribute, setText } from "./dom.js";
import { plural } from "./format.js";
import { surveyAddress } from "./state.js";
import { time } from "./zone.js";

const NOTES = {
  prometheus: "States from Prometheus. Alerts on values read always-valid bounds, so that repeated looks do not raise the false-alarm rate.",
  estimates: "Evaluated on the stored always-valid bounds; set THAW_PROMETHEUS to show the states of Prometheus.",
  unreachable: "Prometheus does not answer; its alerts are unknown.",
};
const KEY = (alert) => [alert.name, alert.survey, alert.value, alert.window].join("\n");

/** A runbook as a link, if it is one: an address of the web or a path of this exporter, nothing else. */
function runbookLink(alert) {
  if (!/^(https?:\/\/|\/)/i.test(alert.runbook ?? "")) return null;
  return h("a", { href: alert.runbook, target: "_blank", rel: "noopener noreferrer", "aria-label": `Runbook of ${alert.name}` }, "runbook");
}

export class AlertsView {
  /** known(id): the survey, or undefined. */
  constructor(section, known) {
    this.section = section;
    this.known = known;
    this.alerts = { source: "estimates", alerts: [] };
    this.survey = null;
    this.loud = h("ul", { class: "alert-list" });
    this.quiet = h("ul", { class: "alert-list" });
    this.summary = h("summary", {});
    this.details = h("details", { class: "alert-quiet" }, this.summary, this.quiet);
    this.note = h("p", { class: "sentence" });
    section.append(h("h2", {}, "Alerts"), this.loud, this.details, this.note);
  }

  set(alerts) {
    this.alerts = alerts;
    this.draw();
  }

  /** Show the alerts of one survey and of the pipeline; null: of all surveys. */
  setSurvey(survey) {
    this.survey = survey;
    this.draw();
  }

  draw() {
    const { source } = this.alerts;
    const shown = this.alerts.alerts.filter((alert) => this.survey === null || alert.survey === null || alert.survey === this.survey);
    const loud = shown.filter((alert) => alert.state !== "inactive");
    const quiet = shown.filter((alert) => alert.state === "inactive");
    this.section.hidden = shown.length === 0 && source !== "unreachable";
    this.fill(this.loud, loud);
    this.fill(this.quiet, quiet);
    this.details.hidden = quiet.length === 0;
    setText(this.summary, `${plural(quiet.length, "quiet rule")}`);
    const firing = (alerts) => alerts.filter((alert) => alert.state === "firing").length;
    const elsewhere = firing(this.alerts.alerts) - firing(shown);
    const none = this.survey === null ? "No alert fires." : "No alert of this survey fires.";
    const others = `${plural(elsewhere, "alert")} of other surveys ${elsewhere === 1 ? "fires" : "fire"}.`;
    setText(this.note, [
      loud.length === 0 && source !== "unreachable" && none,
      elsewhere > 0 && others,
      NOTES[source],
    ].filter(Boolean).join(" "));
  }

  fill(list, alerts) {
    // Names of surveys may come after their alerts.
    const key = (alert) => `${KEY(alert)}\n${this.known(alert.survey)?.name}`;
    keyed(list, alerts, key, (alert) => this.make(alert), (node, alert) => {
      setAttribute(node, "data-state", alert.state);
      setText(node.parts.state, alert.state);
      setText(node.parts.text, alert.summary);
      setText(node.parts.since, alert.since_ms === null ? "" : `since ${time(alert.since_ms)}`);
    });
  }

  make(alert) {
    const parts = { state: h("span", { class: "alert-state" }), text: h("span", { class: "alert-text" }), since: h("span", { class: "alert-since" }) };
    const survey = alert.survey === null ? undefined : this.known(alert.survey);
    const text = [survey?.name ?? alert.survey, alert.value, alert.window && `window ${alert.window}`].filter(Boolean).join(" · ");
    const where = survey ? h("a", { href: surveyAddress(survey.id, { value: alert.value }), "data-inside": "" }, text) : text;
    const node = h("li", {}, parts.state, h("strong", {}, alert.name), h("span", { class: "alert-where" }, where), parts.text,
      h("span", { class: "alert-end" }, parts.since, " ", runbookLink(alert)));
    node.parts = parts;
    return node;
  }
}
