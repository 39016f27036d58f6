// One election: who leads and for how long, who takes part, what happened.

import { ageOf, reading } from "./clock.js";
import { ask } from "./dialog.js";
import { Timeline, WINDOWS } from "./timeline.js";
import { duration, el, ending, fine, plain, say, svg, timeOfDay } from "./words.js";
import { get, post } from "./wire.js";

const TERMS_SHOWN = 6;
const TRIPS_KEPT = 120;
const SPARK_MIN = 30;
// How long what has no lease is believed: the sidecar says something every second.
const BELIEVED_MAX = 10e3;
const RING = 2 * Math.PI * 44;

export class Card {
  constructor(name) {
    this.name = name;
    this.trips = [];
    this.rows = new Map();
    this.nobody = el("td", { colspan: 5, class: "quiet" });
    this.nobodyRow = el("tr", {}, this.nobody);
    this.history = { terms: [] };
    this.zoomed = false;
    this.timeline = new Timeline(name);
    this.node = this.build();
  }

  // ------------------------------------------------------------------ structure

  build() {
    const id = `r-${Math.random().toString(36).slice(2)}`;
    this.key = el("code", { class: "key" });
    this.pill = el("span", { class: "pill" });
    this.caption = el("p", { class: "caption" }, "Leader");
    this.leader = el("p", { class: "leader" }, "…");
    this.facts = el("p", { class: "facts" });
    this.resign = el("button", { class: "ghost", onclick: () => this.askResign() }, "Resign…");
    this.note = el("p", { class: "note", hidden: true });
    this.zoomBar = el("div", { class: "zoom", role: "group", "aria-label": "How far back" },
      ...WINDOWS.map((window) => el("button", {
        "aria-pressed": "false", onclick: () => this.zoom(window.ms, true), data: { ms: window.ms },
      }, window.label)));
    this.members = el("tbody");
    this.terms = el("tbody");
    this.latency = el("div", { class: "latency" });
    return el("section", { class: "card", "aria-labelledby": id, data: { name: this.name } },
      el("header", { class: "card-head" },
        el("h2", { id }, this.name), this.key, this.pill),
      el("div", { class: "hero" },
        el("div", { class: "who-leads" }, this.caption, this.leader, this.facts,
          el("div", { class: "actions" }, this.resign)),
        this.buildRing()),
      this.note,
      el("div", { class: "block" },
        el("div", { class: "block-head" }, el("h3", {}, "Terms"), this.zoomBar),
        this.timeline.node),
      el("div", { class: "columns" },
        el("div", { class: "block grow" }, el("h3", {}, "Members"), this.table("members",
          ["Instance", "State", "Priority", "Heartbeat", ""], this.members)),
        el("div", { class: "block" }, el("h3", { class: "latency-title" }, "Renewals"), this.latency)),
      el("details", { class: "block" },
        el("summary", {}, "Latest terms"),
        this.table("terms", ["Token", "Instance", "Lasted", "Ended", "Gap before"], this.terms)));
  }

  table(kind, heads, body) {
    const cells = heads.map((head) => el("th", { scope: "col" }, head));
    return el("div", { class: "scroll" }, el("table", { class: kind },
      el("thead", {}, el("tr", {}, ...cells)), body));
  }

  buildRing() {
    this.arc = svg("circle", { class: "arc", cx: 50, cy: 50, r: 44, "stroke-dasharray": RING });
    this.left = svg("text", { class: "left", x: 50, y: 53 }, "–");
    this.leftUnit = svg("text", { class: "unit", x: 50, y: 68 }, "lease");
    return svg("svg", { class: "ring", viewBox: "0 0 100 100", role: "timer", "aria-label": "time left of the lease" },
      svg("circle", { class: "track", cx: 50, cy: 50, r: 44 }), this.arc, this.left, this.leftUnit);
  }

  // ------------------------------------------------------------------ what came in

  /** Its state, as of now. */
  update(view) {
    const before = this.view;
    this.view = view;
    this.receivedAt = reading();
    if (view.store.round_trip_ms !== null) {
      this.trips.push(view.store.round_trip_ms);
      if (this.trips.length > TRIPS_KEPT) this.trips.shift();
    }
    this.tick();
    this.showMembers();
    this.timeline.people(view.members.filter((member) => member.alive).map((member) => member.instance));
    this.showLatency();
    const turned = !before || before.leader?.token !== view.leader?.token
      || Boolean(before.vacancy) !== Boolean(view.vacancy);
    if (turned) this.loadHistory();
  }

  async loadHistory() {
    try {
      const history = await get(`history/${encodeURIComponent(this.name)}`);
      const [server, here] = [Date.parse(history.server_time ?? new Date()), performance.now()];
      this.history = history;
      this.timeline.show({ ...history, clock: () => server + performance.now() - here });
      if (!this.zoomed) this.zoom(fitting(history.terms, server), false);
      this.showTerms();
      this.timeline.frame();
    } catch {
      // The stream says when the connection is gone; the next change asks again.
    }
  }

  /** Nothing can be asked for any more; what is known ends with the lease. */
  disconnect() {
    this.node.dataset.stale = "";
    this.lost = true;
  }

  connect() {
    delete this.node.dataset.stale;
    if (this.lost) this.loadHistory();
    this.lost = false;
  }

  zoom(ms, byHand) {
    this.zoomed ||= byHand;
    this.timeline.zoom(ms);
    for (const button of this.zoomBar.children) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.ms) === ms));
    }
    this.timeline.frame();
  }

  // ------------------------------------------------------------------ showing

  /**
   * What is known at this moment: { leader, remaining }, { vacancy } or { unknown }. A lease that is
   * over says nothing, whoever held it; nor does a word that came too late.
   */
  known() {
    const { leader, vacancy, unknown } = this.view;
    const age = this.age();
    if (unknown) return { unknown: { since: Date.now() - unknown.for_ms - age, last: unknown.last_leader } };
    if (!leader && !vacancy) return {};
    const lasts = leader && leader.remaining_ms !== null ? leader.remaining_ms : BELIEVED_MAX;
    if (age >= lasts && this.view.enabled) {
      return { unknown: { since: Date.now() - (age - lasts), last: leader } };
    }
    return leader ? { leader, remaining: leader.remaining_ms === null ? null : lasts - age } : { vacancy };
  }

  /** What the title of the page says. */
  headline() {
    if (!this.view) return null;
    const { leader, unknown } = this.known();
    return unknown ? "Unknown" : leader?.instance ?? null;
  }

  /** Whether the store is silent, as the sidecar said last. */
  missesStore() {
    return this.view?.store.state === "down";
  }

  /** Since when the sidecar says nothing, once what it said last is over; null while it speaks. */
  silentSince() {
    if (!this.view || this.view.unknown || !this.known().unknown) return null;
    return Date.now() - this.age();
  }

  showLeader({ leader, vacancy, unknown }) {
    const { view } = this;
    say(this.key, view.key);
    say(this.pill, !view.enabled ? "switched off" : unknown ? "unknown" : standing(view));
    this.pill.dataset.role = unknown ? "unknown" : view.role;
    this.node.dataset.led = String(Boolean(leader));
    say(this.leader, leader ? leader.instance : unknown ? "Unknown" : vacancy ? "Nobody" : "…");
    this.leader.title = plain(leader?.id ?? "");
    this.resign.hidden = !leader || leader.foreign || !view.enabled || Boolean(this.lost) || view.store.state === "down";
    const since = this.silentSince();
    const silence = since !== null ? `The sidecar has been silent since ${timeOfDay(since)}.`
      : unknown ? "The store has been silent since then." : null;
    const problem = view.store.error ?? silence ?? view.warnings[0] ?? vacancy?.text ?? null;
    this.note.hidden = problem === null;
    if (problem !== null) say(this.note, problem);
  }

  showFacts({ leader, vacancy, unknown }) {
    const facts = [];
    if (unknown) {
      facts.push(`since ${timeOfDay(unknown.since)}`);
      facts.push(unknown.last ? `last seen ${unknown.last.instance}` : "last seen nobody");
      if (unknown.last?.token) facts.push(`token ${unknown.last.token}`);
    } else if (!leader) {
      facts.push(vacancy ? vacancy.code : "waiting for the store");
      if (vacancy?.left_ms) facts.push(`${duration(vacancy.left_ms - this.age())} left`);
    } else {
      if (leader.leads_for_ms !== null) facts.push(`for ${duration(leader.leads_for_ms + this.age())}`);
      if (leader.token !== null) facts.push(`token ${leader.token}`);
      if (leader.foreign) facts.push("a foreign program");
    }
    while (this.facts.children.length > facts.length) this.facts.lastElementChild.remove();
    while (this.facts.children.length < facts.length) this.facts.append(el("span"));
    facts.forEach((fact, index) => say(this.facts.children[index], fact));
  }

  /** Rows stay what they are and only change their words: a button must not vanish under a finger. */
  showMembers() {
    const { members } = this.view;
    const known = this.known();
    const rows = members.map((member) => {
      const row = this.rows.get(member.id) ?? new MemberRow(this, member);
      row.update(member, known, this);
      return row;
    });
    this.rows = new Map(rows.map((row) => [row.member.id, row]));
    const nodes = rows.map((row) => row.node);
    if (nodes.length === 0) {
      const seen = this.view.store.seen_ms_ago !== null;
      say(this.nobody, seen ? "Nobody takes part." : "Not known yet: the store has not answered.");
      nodes.push(this.nobodyRow);
    }
    const shown = [...this.members.children];
    const same = shown.length === nodes.length && shown.every((node, index) => node === nodes[index]);
    if (!same) this.members.replaceChildren(...nodes);
  }

  showTerms() {
    const { terms } = this.history;
    const rows = terms.slice(-TERMS_SHOWN).reverse().map((term) => {
      const lasted = term.ended_at ? duration(Date.parse(term.ended_at) - Date.parse(term.began_at)) : "…";
      return el("tr", {},
        el("td", { class: "number" }, String(term.token)),
        el("th", { scope: "row", title: term.id }, term.instance),
        el("td", { class: "number" }, lasted),
        el("td", {}, term.reason ? ending(term.reason) : "leads"),
        el("td", { class: "number" }, duration(term.gap_ms)));
    });
    this.terms.replaceChildren(...rows);
  }

  showLatency() {
    const own = this.view.renewals_ms.length > 0;
    const values = own ? this.view.renewals_ms : this.trips;
    say(this.node.querySelector(".latency-title"), own ? "Renewals" : "Round trips to the store");
    if (values.length === 0) return this.latency.replaceChildren(el("p", { class: "quiet" }, "None yet."));
    const sorted = [...values].sort((a, b) => a - b);
    const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
    const figures = el("dl", { class: "figures" }, ...[["last", values.at(-1)], ["median", at(0.5)], ["p99", at(0.99)]]
      .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, fine(value)))));
    this.latency.replaceChildren(figures, sparkline(values, at(1)));
  }

  age() {
    return ageOf(this.view.as_of_ms, this.receivedAt);
  }

  /** What moves by itself, whether the sidecar still speaks or not. */
  tick() {
    if (!this.view) return;
    const known = this.known();
    const { leader, unknown, remaining = null } = known;
    this.showLeader(known);
    this.showFacts(known);
    // Rows say other things once nothing is known, or nothing can be asked for.
    const mode = `${Boolean(leader)} ${Boolean(unknown)} ${Boolean(this.lost)}`;
    if (mode !== this.mode) {
      this.mode = mode;
      this.showMembers();
    }
    // Leases may differ: the leader's is the one that runs out.
    const holder = this.view.members.find((member) => member.leads);
    const ttl_ms = holder ? holder.ttl_ms : this.view.ttl_ms;
    this.timeline.lease(remaining, ttl_ms);
    this.timeline.doubt(unknown ? Date.now() - unknown.since : null);
    this.timeline.frame();
    const share = remaining === null || !ttl_ms ? 0 : Math.min(1, remaining / ttl_ms);
    this.arc.setAttribute("stroke-dashoffset", String(RING * (1 - share)));
    say(this.left, remaining === null ? "–" : (remaining / 1000).toFixed(1));
    say(this.leftUnit, remaining === null ? "no lease" : "s of lease");
  }

  // ------------------------------------------------------------------ asking

  askResign() {
    const { leader } = this.known();
    if (!leader) return undefined;
    return ask({
      title: `Let ${leader.instance} resign?`,
      text: `${leader.instance} leads ${this.name}. It is asked to stop its work and to release the leadership; another instance then takes over.`,
      yes: "Resign",
      act: () => post(`resign/${encodeURIComponent(this.name)}`),
    });
  }

  askHandOver(member) {
    const { leader } = this.known();
    if (!leader) return undefined;
    return ask({
      title: `Hand over to ${member.instance}?`,
      text: `${leader.instance} leads ${this.name}. It is asked to stop its work; then ${member.instance} takes over, after about a round trip.`,
      yes: "Hand over",
      act: () => post(`hand-over/${encodeURIComponent(this.name)}`, { to: member.id }),
    });
  }
}

function standing(view) {
  if (!view.takes_part) return "observer";
  if (view.role === "leader") return "leads here";
  return view.role;
}

function memberState(member, unknown) {
  if (unknown) return "unknown";
  if (!member.alive) return "silent";
  if (member.leads) return "leads";
  if (member.departing) return "leaving";
  if (member.stalled) return "work stalled";
  return member.ready ? "ready" : "not ready";
}

/** One member's line. */
class MemberRow {
  constructor(card, member) {
    this.state = document.createTextNode("");
    this.priority = el("td", { class: "number" });
    this.level = svg("rect", { class: "level", height: 6, rx: 3 });
    this.ago = el("span");
    this.button = el("button", { class: "ghost", onclick: () => card.askHandOver(this.member) }, "Hand over…");
    this.node = el("tr", { data: { id: member.id } },
      el("th", { scope: "row", title: member.id }, member.instance,
        member.is_self ? el("span", { class: "self" }, "this one") : null),
      el("td", {}, el("span", { class: "dot", "aria-hidden": "true" }), this.state),
      this.priority,
      el("td", { class: "beat" }, el("span", { class: "pulse" },
        svg("svg", { viewBox: "0 0 48 6", "aria-hidden": "true" },
          svg("rect", { class: "base", width: 48, height: 6, rx: 3 }), this.level),
        this.ago)),
      el("td", { class: "do" }, this.button));
  }

  update(member, { leader, unknown }, card) {
    this.member = member;
    const beatAgo = member.beat_ms_ago + (unknown ? card.age() : 0);
    this.node.dataset.leads = member.leads && Boolean(leader);
    this.node.dataset.alive = member.alive && !unknown;
    say(this.state, memberState(member, unknown));
    say(this.priority, String(member.priority));
    const share = Math.max(0, Math.min(1, 1 - beatAgo / (member.ttl_ms * 3)));
    this.level.setAttribute("width", (48 * share).toFixed(1));
    say(this.ago, `${duration(beatAgo)} ago`);
    const canLead = member.ready && member.alive && !member.leads && !member.departing;
    const canBeAsked = Boolean(leader) && !leader.foreign && !card.lost && card.view.store.state !== "down";
    this.button.hidden = !canLead || !canBeAsked;
  }
}

/** The smallest window that has the latest few terms in it. */
function fitting(terms, now) {
  const some = terms.slice(-5)[0];
  const back = some ? now - Date.parse(some.began_at) : 0;
  return (WINDOWS.find((window) => window.ms * 0.95 >= back) ?? WINDOWS.at(-1)).ms;
}

function sparkline(values, top) {
  const [width, height] = [240, 44];
  const ceiling = Math.max(top * 1.15, 0.5);
  // A short past is not drawn as a long one, nor squeezed into a corner.
  const step = width / Math.max(SPARK_MIN, values.length - 1);
  const start = width - (values.length - 1) * step;
  const points = values.map((value, i) => `${(start + i * step).toFixed(1)},${(height - (value / ceiling) * (height - 4) - 2).toFixed(1)}`);
  return svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("polyline", { points: points.join(" ") }));
}
