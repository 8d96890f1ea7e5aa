// The page: load once, then follow the event stream. It uses the public API only.

import { adoptToken, api, listen, NotAllowed, setToken } from "./api.js";
import { h, keyed, setAttribute } from "./dom.js";
import { AlertsView, HealthView } from "./health.js";
import { SurveyView } from "./survey.js";
import { startTheme } from "./theme.js";

const SURVEYS_AGAIN_MS = 15_000;

const byId = (id) => document.getElementById(id);
const views = new Map();
let ahead = 0;
const clock = () => Date.now() + ahead;

const health = new HealthView(byId("health"), byId("banner"), byId("live"), clock);
const alerts = new AlertsView(byId("alerts"), (id) => views.get(id)?.info.name ?? id);

function showSurveys(infos) {
  // Canaries come last.
  const sorted = [...infos].sort((a, b) => a.canary - b.canary || a.id.localeCompare(b.id));
  const main = byId("surveys");
  for (const info of sorted) if (!views.has(info.id)) views.set(info.id, new SurveyView(info, clock));
  keyed(main, sorted, (info) => info.id, (info) => views.get(info.id).node, () => {});
  keyed(byId("nav"), sorted, (info) => info.id, (info) => h("a", { href: `#${info.id}` }, info.name), () => {});
  setAttribute(main, "data-surveys", sorted.length);
  if (sorted.length === 0) {
    main.replaceChildren(h("p", { class: "card empty" }, "No surveys: the folder THAW_SURVEYS has no survey files."));
  }
}

async function load() {
  const infos = await api.surveys();
  showSurveys(infos);
  await Promise.all(infos.map((info) => views.get(info.id).load()));
}

function heard(name, data) {
  if (name === "window") views.get(data.survey)?.putWindow(data);
  else if (name === "alerts") {
    health.setAlerts(data);
    alerts.set(data);
  } else if (name === "health") {
    // Ages are computed with the exporter's clock; this machine's may be wrong.
    ahead = data.now_ms - Date.now();
    health.setHealth(data);
    for (const { survey, last_estimate_ms: last, stale } of data.surveys) {
      views.get(survey)?.showAge(last, stale);
      const link = byId("nav").querySelector(`[data-key="${CSS.escape(survey)}"]`);
      if (link) setAttribute(link, "data-stale", stale);
    }
  }
}

function ask(error) {
  byId("login").hidden = !(error instanceof NotAllowed);
  if (!byId("login").hidden) byId("token").focus();
}

function start() {
  listen({
    opened: () => {
      ask(null);
      health.setConnected(true);
      load().catch(ask);
    },
    heard,
    lost: (error) => {
      health.setConnected(false, String(error));
      ask(error);
    },
  });
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token").value);
  start();
});

adoptToken();
startTheme(byId("theme"), () => views.forEach((view) => view.changed()));
start();
setInterval(() => {
  health.draw();
  views.forEach((view) => view.changed());
}, 1000);
setInterval(() => health.connected && api.surveys().then(showSurveys).catch(ask), SURVEYS_AGAIN_MS);
