// The page: load once, then follow the event stream. It uses the public API only. The address says what is shown: the
// overview, or one survey.

import { AlertsView } from "./alerts.js";
import { adoptToken, api, listen, NotAllowed, setToken } from "./api.js";
import { h, keyed, setAttribute, setText } from "./dom.js";
import { HealthView } from "./health.js";
import { startHelp } from "./help.js";
import { Overview } from "./overview.js";
import { adoptOldLink, followState, state, surveyAddress } from "./state.js";
import { SurveyView } from "./survey.js";
import { startTheme } from "./theme.js";
import { startZone } from "./zone.js";

const SURVEYS_AGAIN_MS = 15_000;

const byId = (id) => document.getElementById(id);
const main = byId("surveys");
let ahead = 0;
const clock = () => Date.now() + ahead;

adoptToken();
adoptOldLink();

/** The surveys by id; null before they were read. */
let infos = null;
/** The survey that is open; null on the overview. */
let view = null;
/** Reads everything again; null while nothing asks for it. */
let again = null;
const overview = new Overview(clock);
const health = new HealthView(byId("health"), { banner: byId("banner"), notice: byId("notice"), live: byId("live") }, clock);
const alerts = new AlertsView(byId("alerts"), (id) => infos?.get(id));

const sameValues = (info, values) => info.values.length === values.length && values.every((value, index) => value === info.values[index]);

/** Where the candidates of a survey have changed, its windows have other values than what was read about it. */
function hasOthers(data) {
  const info = infos?.get(data.survey);
  return Boolean(info?.candidates) && !sameValues(info, data.values.map(({ value }) => value));
}

/** Show what the address asks for. */
function showPage() {
  const info = infos?.get(state.survey);
  const page = state.survey === null ? "overview" : info ? "survey" : infos === null ? "loading" : "missing";
  setAttribute(document.body, "data-page", page);
  document.title = info ? `${info.name} · Thaw` : "Thaw";
  if (view?.info.id !== info?.id || (info?.candidates && !sameValues(view.info, info.values))) {
    view?.leave();
    view = info ? new SurveyView(info, clock) : null;
    if (view) {
      main.replaceChildren(view.node);
      view.load();
      showHealth();
    }
  } else view?.follow();
  if (page === "overview" && overview.node.parentElement !== main) main.replaceChildren(overview.node);
  if (page === "missing") {
    main.replaceChildren(h("p", { class: "card empty" }, "There is no survey with the id ", h("code", {}, state.survey), ". ", h("a", { href: surveyAddress(null), "data-inside": "" }, "All surveys")));
  }
  if (page === "overview") overview.draw();
  alerts.setSurvey(info?.id ?? null);
  showNav();
}

function showNav() {
  const links = [{ id: "", name: "All surveys" }, ...(infos?.values() ?? [])];
  keyed(byId("nav"), links, (info) => info.id, (info) => h("a", { "data-inside": "", title: info.name }, h("span", {}, info.name)), (link, info) => {
    setAttribute(link, "href", surveyAddress(info.id || null));
    setAttribute(link, "aria-current", (info.id || null) === state.survey ? "page" : null);
  });
}

function showSurveys(list) {
  // Canaries come last.
  const sorted = [...list].sort((a, b) => a.canary - b.canary || a.id.localeCompare(b.id));
  infos = new Map(sorted.map((info) => [info.id, info]));
  overview.setSurveys(sorted);
  setAttribute(main, "data-surveys", sorted.length);
  showPage();
  showHealth();
  alerts.draw();
}

async function load() {
  const known = view;
  showSurveys(await api.surveys());
  overview.load();
  if (known !== null && known === view) view.load();
}

/** Read surveys and windows again, once for all windows that ask for it. */
function loadAgain() {
  again ??= load().catch(ask).finally(() => { again = null; });
}

function showHealth() {
  const now = health.health;
  if (now === null) return;
  overview.setHealth(now);
  for (const entry of now.surveys) {
    if (view?.info.id === entry.survey) view.showHealth({ ...entry, down: now.store !== "up", epsilon: now.epsilon_audits.find(({ survey }) => survey === entry.survey) });
    const link = byId("nav").querySelector(`[data-key="${CSS.escape(entry.survey)}"]`);
    if (link) setAttribute(link, "data-stale", entry.state === "stale");
  }
  if (now.store === "up") view?.store.retry();
}

function heard(name, data) {
  if (name === "window") {
    if (hasOthers(data)) {
      loadAgain();
      return;
    }
    overview.hear(data);
    if (view?.info.id === data.survey) view.hear(data);
  } else if (name === "alerts") {
    health.setAlerts(data);
    alerts.set(data);
  } else if (name === "health") {
    // Ages are computed with the exporter's clock; this machine's may be wrong.
    ahead = data.now_ms - Date.now();
    health.setHealth(data);
    showHealth();
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
      health.setConnected(false);
      setText(byId("login-error"), error instanceof NotAllowed && byId("token").value ? "This token was refused." : "");
      ask(error);
    },
  });
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token").value);
  start();
});

/** Draw again what depends on the time, the theme or the time zone. */
function redraw() {
  health.draw();
  if (view) view.changed();
  else if (state.survey === null) overview.draw();
}

startTheme(byId("theme"), redraw);
startZone(byId("zone"), () => alerts.draw());
startHelp(byId("help-button"), byId("help"));
let shown = state.survey;
followState(() => {
  showPage();
  redraw();
  // As after loading a page: begin at its top, and let screen readers begin at its title.
  if (shown !== state.survey) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
  shown = state.survey;
});
showPage();
start();
setInterval(redraw, 1000);
setInterval(() => health.connected && api.surveys().then(showSurveys).catch(ask), SURVEYS_AGAIN_MS);
