// The connection to the sidecar: requests, and the stream of events that comes back after a break.

// `main.js` lies one folder below the routes, wherever they are mounted.
const BASE = new URL("..", import.meta.url);
const RETRY_MIN = 500;
const RETRY_MAX = 5000;
// The sidecar shows a sign of life every ten seconds.
const SILENCE_MAX = 25000;
const PROBE_MAX = 5000;

let token = null;

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export function useToken(given) {
  token = given;
}

function headers(more = {}) {
  return token ? { ...more, authorization: `Bearer ${token}` } : more;
}

export async function get(path) {
  const response = await fetch(new URL(path, BASE), { headers: headers(), cache: "no-store" });
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, body.error ?? response.statusText);
  return body;
}

/** What the sidecar's clock reads now; null if it does not say. */
export async function probe() {
  const response = await fetch(new URL("livez", BASE), { cache: "no-store", signal: AbortSignal.timeout(PROBE_MAX) });
  const asOf = Number(response.headers.get("tenure-as-of-ms") ?? NaN);
  return Number.isFinite(asOf) ? asOf : null;
}

/** Asks for something to be done; the answer says what came of it, done or not. */
export async function post(path, body) {
  const response = await fetch(new URL(path, BASE), {
    method: "POST",
    headers: headers({ "content-type": "application/json" }),
    body: JSON.stringify(body ?? {}),
  });
  const answer = await response.json().catch(() => ({}));
  return { done: response.ok, status: response.status, text: answer.why ?? answer.error ?? "" };
}

/** Follows events for ever. `on.event(kind, data)`, `on.up()`, `on.down(why)`, `on.refused()`. */
export async function follow(on) {
  let last = null;
  let pause = RETRY_MIN;
  for (;;) {
    let why = "the sidecar ended the connection";
    try {
      await stream(last, (kind, data, id) => {
        pause = RETRY_MIN;
        if (id !== null) last = id;
        on.event(kind, data);
      }, on.up);
    } catch (error) {
      if (error instanceof Refused && error.status === 401) {
        await on.refused();
        continue;
      }
      why = error instanceof Refused ? error.message : "the sidecar does not answer";
    }
    on.down(why);
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(pause * 1.6, RETRY_MAX);
  }
}

async function stream(last, deliver, up) {
  const control = new AbortController();
  let silence = setTimeout(() => control.abort(), SILENCE_MAX);
  try {
    const wanted = headers(last === null ? {} : { "last-event-id": last });
    const response = await fetch(new URL("events", BASE), {
      headers: wanted, signal: control.signal, cache: "no-store",
    });
    if (!response.ok) {
      const body = await response.json().catch(() => ({}));
      throw new Refused(response.status, body.error ?? response.statusText);
    }
    up();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(silence);
      silence = setTimeout(() => control.abort(), SILENCE_MAX);
      const blocks = (text + value).split("\n\n");
      text = blocks.pop();
      for (const block of blocks) parse(block, deliver);
    }
  } finally {
    clearTimeout(silence);
    control.abort();
  }
}

function parse(block, deliver) {
  let kind = "message", id = null;
  const data = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon < 1) continue;
    const value = line.slice(colon + 1).replace(/^ /, "");
    if (line.startsWith("event:")) kind = value;
    else if (line.startsWith("id:")) id = value;
    else if (line.startsWith("data:")) data.push(value);
  }
  if (data.length > 0) deliver(kind, JSON.parse(data.join("\n")), id);
}
