// Requests to the exporter. All use fetch, server-sent events included, so that they can carry a token.

const TOKEN = "thaw-token";
const QUIET_MS = 10_000;

export class NotAllowed extends Error {
  name = "NotAllowed";
}

/** An answer other than 200; the message is what the exporter said. */
class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Move a token given as #token=... from the address to the session storage of this tab. */
export function adoptToken() {
  const match = /^#token=(.+)$/.exec(location.hash);
  if (match) {
    sessionStorage.setItem(TOKEN, decodeURIComponent(match[1]));
    history.replaceState(null, "", location.pathname + location.search);
  }
}

export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function request(path, options = {}) {
  const response = await fetch(path, { headers: headers(), cache: "no-store", ...options });
  if (response.status === 401) throw new NotAllowed("the token is missing or wrong");
  if (!response.ok) {
    const told = await response.json().catch(() => ({}));
    throw new Refused(told.error ?? `the exporter answered ${response.status}`, response.status);
  }
  return response;
}

export async function get(path) {
  return (await request(path)).json();
}

const survey = (id) => `/api/v1/surveys/${encodeURIComponent(id)}`;

export const api = {
  surveys: () => get("/api/v1/surveys"),
  windows: (id, limit, { from = null, to = null } = {}) =>
    get(`${survey(id)}/windows?limit=${limit}${from === null ? "" : `&from_ms=${from}`}${to === null ? "" : `&to_ms=${to}`}`),
  window: (id, start) => get(`${survey(id)}/windows/${start}`),
  views: (id, start, ask = null) => get(`${survey(id)}/windows/${start}/views${ask === null ? "" : `?ask=${ask}`}`),
  history: (id, start) => get(`${survey(id)}/windows/${start}/history`),
};

/** Split a stream of text into events: [name, data] pairs. */
export class EventParser {
  #rest = "";

  push(text) {
    const blocks = (this.#rest + text).split("\n\n");
    this.#rest = blocks.pop();
    const events = [];
    for (const block of blocks) {
      let name = "message";
      const data = [];
      for (const line of block.split("\n")) {
        if (line.startsWith("event: ")) name = line.slice(7);
        else if (line.startsWith("data: ")) data.push(line.slice(6));
      }
      if (data.length > 0) events.push([name, JSON.parse(data.join("\n"))]);
    }
    return events;
  }
}

/**
 * Listen to the event stream; reconnect with growing pauses. Calls `opened()` after each connection (then request the
 * windows), `heard(name, data)` for each event, `lost(error)` when the connection broke or no event came for too long.
 */
export async function listen({ opened, heard, lost }) {
  let pause = 500;
  for (;;) {
    const abort = new AbortController();
    let silence = setTimeout(() => abort.abort(), QUIET_MS);
    try {
      const response = await request("/api/v1/events", { signal: abort.signal });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const parser = new EventParser();
      opened();
      pause = 500;
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        clearTimeout(silence);
        silence = setTimeout(() => abort.abort(), QUIET_MS);
        for (const [name, data] of parser.push(value)) heard(name, data);
      }
      throw new Error("the exporter closed the connection");
    } catch (error) {
      clearTimeout(silence);
      lost(error);
      if (error instanceof NotAllowed) return;
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 1.7, 8000);
  }
}
