// Puts it together: one card per election, one list of what happened, one word on the connection.

import { Card } from "./card.js";
import { forget } from "./clock.js";
import { askToken } from "./dialog.js";
import { el, plain, say, timeOfDay } from "./words.js";
import { follow, get, Refused, useToken } from "./wire.js";

const ENTRIES_SHOWN = 60;
const cards = new Map();
const byId = (id) => document.getElementById(id);
const calm = matchMedia("(prefers-reduced-motion: reduce)");

function card(name) {
  if (!cards.has(name)) {
    cards.set(name, new Card(name));
    const sorted = [...cards.keys()].sort((a, b) => a.localeCompare(b));
    byId("resources").replaceChildren(...sorted.map((known) => cards.get(known).node));
  }
  return cards.get(name);
}

function title() {
  const led = [...cards.values()].map((known) => known.headline()).filter(Boolean);
  const title = led.length > 0 ? plain(`${led.join(", ")} · Tenure`) : "Tenure";
  if (document.title !== title) document.title = title;
}

function write(entry) {
  const list = byId("journal");
  const item = el("li", { data: { kind: entry.kind } },
    el("time", { datetime: entry.at }, timeOfDay(entry.at)),
    el("span", { class: "name" }, entry.name),
    el("span", { class: "text" }, entry.text));
  list.prepend(item);
  while (list.children.length > ENTRIES_SHOWN) list.lastElementChild.remove();
  byId("journal-empty").hidden = true;
}

function aside(text) {
  byId("journal").prepend(el("li", { data: { kind: "aside" } }, el("span", { class: "text" }, text)));
}

function link(state, text) {
  byId("link").dataset.state = state;
  say(byId("link-text"), text);
}

async function overview() {
  const status = await get("status");
  say(byId("instance"), status.instance);
  say(byId("store"), status.store);
  say(byId("version"), `Tenure ${status.version}`);
  for (const view of status.resources) card(view.name).update(view);
  byId("resources").removeAttribute("aria-busy");
  title();
}

let lostAt = null;
let connected = false;

/** One word on what is known: of the sidecar, and through it of the store. */
function showLink() {
  if (!connected) return;
  const all = [...cards.values()];
  const silences = all.map((known) => known.silentSince()).filter((since) => since !== null);
  if (all.some((known) => known.missesStore())) link("lost", "store unreachable");
  else if (silences.length > 0) link("lost", `the sidecar has been silent since ${timeOfDay(Math.min(...silences))}`);
  else if (all.some((known) => known.view?.unknown)) link("lost", "who leads is unknown");
  else link("live", "live");
}

const on = {
  event(kind, data) {
    if (kind === "entry") write(data);
    else if (kind === "resource") card(data.name).update(data);
    else if (kind === "missed") aside(`${data.count} entries were missed`);
    else if (kind === "restarted") aside("the sidecar was restarted");
    title();
  },
  up() {
    lostAt = null;
    connected = true;
    forget();
    showLink();
    byId("notice").hidden = true;
    for (const known of cards.values()) known.connect();
    overview().catch(() => {});
  },
  down(why) {
    lostAt ??= new Date();
    connected = false;
    link("lost", "connection lost");
    say(byId("notice"), `Connection lost: ${why}. What you see is from ${timeOfDay(lostAt)}. Trying again…`);
    byId("notice").hidden = false;
    for (const known of cards.values()) known.disconnect();
  },
  async refused() {
    connected = false;
    link("lost", "token needed");
    await askToken(useToken);
  },
};

function tick() {
  for (const known of cards.values()) known.tick();
  title();
  showLink();
}

// Smooth enough for the eye and easy on the battery; a step per second where motion is unwelcome.
function schedule() {
  setTimeout(() => requestAnimationFrame(() => { tick(); schedule(); }), calm.matches ? 1000 : 60);
}

overview().catch((error) => {
  if (!(error instanceof Refused)) link("lost", "connection lost");
});
schedule();
follow(on);
