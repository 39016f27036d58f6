// Puts it together: a list of all elections, a view of each, one list of what happened, one word on
// the connection.

import { Card } from "./card.js";
import { forget } from "./clock.js";
import { askToken } from "./dialog.js";
import { Election } from "./election.js";
import { List } from "./list.js";
import { arrange, el, plain, say, utc, when } from "./words.js";
import { follow, get, useToken } from "./wire.js";

const ENTRIES_KEPT = 500;
const ENTRIES_SHOWN = 60;
// Smooth enough for the eye where one election moves; calm where fifty do.
const FRAME = 60;
const LIST_FRAME = 250;
const ASK_AGAIN = 2000;

const elections = new Map();
const entries = [];
const byId = (id) => document.getElementById(id);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const list = new List(elections);
let card = null;
let lost = false;
/** Whether the sidecar has named all its elections. */
let complete = false;

// ---------------------------------------------------------------------- which view

/** The election that the address names; of a single one the view is the whole page. */
function wanted() {
  const found = /^#\/e\/(.+)$/.exec(location.hash);
  if (found) {
    try {
      return decodeURIComponent(found[1]);
    } catch {
      return found[1];
    }
  }
  return elections.size === 1 ? [...elections.keys()][0] : null;
}

function route() {
  const name = wanted();
  const election = name === null ? null : elections.get(name);
  if (!election) card = null;
  else if (card?.election !== election) card = new Card(election);
  byId("back").hidden = name === null || (elections.size === 1 && Boolean(election));
  arrange(byId("resources"), [shown(name)].filter(Boolean));
  document.body.dataset.view = name === null ? "list" : "election";
  if (lost) card?.disconnect();
  tick();
  showEntries();
}

let missing = null;

function shown(name) {
  if (card) return card.node;
  if (name === null && elections.size > 0) return list.node;
  if (name === null && !complete) return null;
  missing ??= el("p", { class: "notice" });
  const none = "No election yet: programs join over HTTP.";
  say(missing, name === null ? none : complete ? `This sidecar has no election ${name}.` : `Waiting for ${name}…`);
  return missing;
}

document.querySelector(".skip").addEventListener("click", (event) => {
  // The address says which view it is.
  event.preventDefault();
  byId("resources").focus();
});

addEventListener("hashchange", () => {
  const before = document.body.dataset.view;
  route();
  if (document.body.dataset.view !== before || card) scrollTo(0, 0);
});

addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, select, textarea, dialog");
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey || card) return;
  event.preventDefault();
  list.search.focus();
});

// ---------------------------------------------------------------------- what happened

function write(entry) {
  entries.unshift(entry);
  entries.length = Math.min(entries.length, ENTRIES_KEPT);
  if (isShown(entry)) {
    byId("journal").prepend(item(entry));
    while (byId("journal").children.length > ENTRIES_SHOWN) byId("journal").lastElementChild.remove();
  }
  byId("journal-empty").hidden = byId("journal").children.length > 0;
}

const isShown = (entry) => card === null || !entry.name || entry.name === card.name;

function showEntries() {
  byId("journal").replaceChildren(...entries.filter(isShown).slice(0, ENTRIES_SHOWN).map(item));
  byId("journal-empty").hidden = byId("journal").children.length > 0;
}

function item(entry) {
  return el("li", { data: { kind: entry.kind } },
    entry.at ? el("time", { datetime: entry.at, title: utc(entry.at) }, when(entry.at)) : null,
    entry.name && card === null ? el("span", { class: "name" }, entry.name) : null,
    el("span", { class: "text" }, entry.text));
}

const aside = (text) => write({ kind: "aside", text });

// ---------------------------------------------------------------------- what is known

function of(name) {
  if (!elections.has(name)) {
    elections.set(name, new Election(name));
    elections.get(name).lost = lost;
    later();
  }
  return elections.get(name);
}

let planned = false;

/** Many elections come at once: the view is chosen and drawn once for all of them. */
function later() {
  if (planned) return;
  planned = true;
  requestAnimationFrame(() => {
    planned = false;
    route();
  });
}

/** Which connection this is; what an earlier one said is no news. */
let connection = 0;
/** What was left while the overview is asked for, and when: it may still be in that answer. */
const left = new Map();
let asking = 0;

function take(view) {
  // An answer that was made before it was left came after the word of that.
  if (view.as_of_ms <= (left.get(view.name) ?? -1)) return;
  left.delete(view.name);
  const election = of(view.name);
  // Of two views of one sidecar the larger number is the newer, whichever came first.
  if (election.connection === connection && view.as_of_ms < election.view.as_of_ms) return;
  election.connection = connection;
  election.update(view);
  if (card?.election === election) card.update();
}

/** It is not watched any more: nothing is shown of it, and nothing offered. */
function leave(name) {
  if (!elections.delete(name)) return;
  list.forget(name);
  later();
}

async function overview() {
  const asked = connection;
  asking += 1;
  try {
    const status = await get("status");
    // Another sidecar may have taken its place meanwhile.
    if (asked === connection) showOverview(status);
  } finally {
    asking -= 1;
    if (asking === 0) left.clear();
  }
}

function showOverview(status) {
  say(byId("instance"), status.instance);
  say(byId("store"), status.store);
  say(byId("version"), `Tenure ${status.version}`);
  status.resources.forEach(take);
  // What was left while nobody listened. What this connection has told of is newer than the answer.
  const named = new Set(status.resources.map((view) => view.name));
  for (const [name, election] of elections) {
    if (!named.has(name) && election.connection !== connection) leave(name);
  }
  complete = true;
  byId("resources").removeAttribute("aria-busy");
  later();
}

/** Asks until it is answered: what is shown from an earlier connection may be gone. */
async function refresh() {
  const asked = connection;
  while (connected && asked === connection) {
    try {
      return await overview();
    } catch {
      await new Promise((done) => setTimeout(done, ASK_AGAIN));
    }
  }
}

function title() {
  const all = [...elections.values()];
  const trouble = all.filter((election) => election.isTrouble()).length;
  const shown = card?.election ?? null;
  let words = all.length > 1 ? [trouble > 0 ? `${trouble} in trouble` : `${all.length} elections`] : [];
  if (shown) words = [headline(shown), all.length > 1 ? shown.name : null];
  const title = plain([...words.filter(Boolean), "Tenure"].join(" · "));
  if (document.title !== title) document.title = title;
  const others = trouble - Number(shown?.isTrouble() ?? false);
  say(byId("back-trouble"), others > 0 ? `${others} in trouble` : "");
}

function headline(election) {
  const { leader, unknown } = election.known();
  return unknown ? "Unknown" : leader?.instance ?? null;
}

// ---------------------------------------------------------------------- the connection

function link(state, text) {
  byId("link").dataset.state = state;
  say(byId("link-text"), text);
}

let lostAt = null;
let connected = false;

/** One word on what is known: of the sidecar, and through it of the store. */
function showLink() {
  if (!connected) return;
  const all = [...elections.values()];
  const silences = all.map((known) => known.silentSince()).filter((since) => since !== null);
  if (all.some((known) => known.missesStore())) link("lost", "store unreachable");
  else if (silences.length > 0) link("lost", `the sidecar has been silent since ${when(Math.min(...silences))}`);
  else if (all.some((known) => known.view?.unknown)) link("lost", "who leads is unknown");
  else link("live", "live");
}

function setLost(is) {
  lost = is;
  for (const election of elections.values()) election.lost = is;
  list.node.toggleAttribute("data-stale", is);
  if (is) card?.disconnect();
  else card?.connect();
}

const on = {
  event(kind, data) {
    if (kind === "entry") write(data);
    else if (kind === "resource") take(data);
    else if (kind === "gone") {
      if (asking > 0) left.set(data.name, data.as_of_ms);
      leave(data.name);
    }
    else if (kind === "missed") aside(`${data.count} entries were missed`);
    else if (kind === "restarted") aside("the sidecar was restarted");
  },
  up() {
    lostAt = null;
    connected = true;
    connection += 1;
    left.clear();
    forget();
    showLink();
    byId("notice").hidden = true;
    setLost(false);
    refresh();
  },
  down(why) {
    lostAt ??= new Date();
    connected = false;
    link("lost", "connection lost");
    say(byId("notice"), `Connection lost: ${why}. What you see is from ${when(lostAt)}. Trying again…`);
    byId("notice").hidden = false;
    setLost(true);
  },
  async refused() {
    connected = false;
    link("lost", "token needed");
    await askToken(useToken);
  },
};

function tick() {
  if (card) card.tick();
  else if (elections.size > 0 && list.node.isConnected) list.show();
  title();
  showLink();
}

// A step per second where motion is unwelcome.
function schedule() {
  const frame = card ? FRAME : LIST_FRAME;
  setTimeout(() => requestAnimationFrame(() => { tick(); schedule(); }), calm.matches ? 1000 : frame);
}

// A tab in the background draws nothing, but its title is read.
setInterval(title, 1000);
schedule();
follow(on);
