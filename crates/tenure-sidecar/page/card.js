// The view of one election: who leads and for how long, who takes part, what happened.

import { ask, askPause } from "./dialog.js";
import { History } from "./history.js";
import { Members } from "./members.js";
import { Timeline, WINDOWS } from "./timeline.js";
import { arrange, duration, el, fine, hint, lasting, plain, say, svg, utc, when } from "./words.js";
import { post } from "./wire.js";

const SPARK_MIN = 30;
const RING = 2 * Math.PI * 44;

export class Card {
  constructor(election) {
    this.election = election;
    this.name = election.name;
    this.path = encodeURIComponent(election.name);
    this.zoomed = false;
    this.timeline = new Timeline(this.name, { range: () => this.showZoom(), earlier: () => this.history.readEarlier() });
    this.history = new History(this.name, (history) => this.showHistory(history));
    this.members = new Members((member) => this.askHandOver(member));
    this.node = this.build();
    if (election.view) this.update();
  }

  // ------------------------------------------------------------------ structure

  build() {
    const id = "election-title";
    this.key = el("code", { class: "key" });
    this.pill = el("span", { class: "pill" });
    this.leader = el("p", { class: "leader" }, "…");
    this.facts = el("p", { class: "facts" });
    this.resign = el("button", { class: "ghost", hidden: true, onclick: () => this.askResign() }, "Resign…");
    this.pause = el("button", { class: "ghost", hidden: true, onclick: () => this.askPause() }, "Pause…");
    this.resume = el("button", { class: "ghost", hidden: true, onclick: () => this.askResume() }, "Resume…");
    this.notes = el("div", { class: "notes" });
    this.zoomBar = el("div", { class: "zoom", role: "group", "aria-label": "How far back" },
      el("button", { "aria-label": "Earlier", onclick: () => this.timeline.pan(-0.5) }, "‹"),
      ...WINDOWS.map((window) => el("button", {
        "aria-pressed": "false", onclick: () => this.zoom(window.ms, true), data: { ms: window.ms },
      }, window.label)),
      el("button", { "aria-label": "Later", onclick: () => this.timeline.pan(0.5) }, "›"));
    this.latencyTitle = el("h3", { class: "latency-title" }, "Renewals");
    this.latency = el("div", { class: "latency" });
    return el("section", { class: "card", "aria-labelledby": id, data: { name: this.name } },
      el("header", { class: "card-head" }, el("h2", { id }, this.name), this.key, this.pill),
      el("div", { class: "hero" },
        el("div", { class: "who-leads" }, el("p", { class: "caption" }, "Leader"), this.leader, this.facts,
          el("div", { class: "actions" }, this.resign, this.pause, this.resume)),
        this.buildRing()),
      this.notes,
      el("div", { class: "block" },
        el("div", { class: "block-head" }, el("h3", {}, "Terms"), this.zoomBar),
        this.timeline.node),
      el("div", { class: "block" }, el("h3", {}, "Members"), this.members.node),
      this.history.node,
      el("div", { class: "block" }, this.latencyTitle, this.latency));
  }

  buildRing() {
    this.arc = svg("circle", { class: "arc", cx: 50, cy: 50, r: 44, "stroke-dasharray": RING });
    this.left = svg("text", { class: "left", x: 50, y: 53 }, "–");
    this.leftUnit = svg("text", { class: "unit", x: 50, y: 68 }, "lease");
    return svg("svg", { class: "ring", viewBox: "0 0 100 100", role: "timer", "aria-label": "time left of the lease" },
      svg("circle", { class: "track", cx: 50, cy: 50, r: 44 }), this.arc, this.left, this.leftUnit);
  }

  // ------------------------------------------------------------------ what came in

  /** The election has something new to say. */
  update() {
    const { view } = this.election;
    this.tick();
    this.members.show(this.election);
    this.timeline.people(view.members.filter((member) => member.alive));
    this.showLatency();
    const turn = `${view.leader?.token} ${Boolean(view.vacancy)} ${Boolean(view.unknown)}`;
    if (turn !== this.turn) this.history.read();
    this.turn = turn;
  }

  showHistory(history) {
    this.timeline.show(history);
    if (!this.zoomed) this.zoom(fitting(history.terms, history.clock()), false);
    this.timeline.frame();
  }

  /** Nothing can be asked for any more; what is known ends with the lease. */
  disconnect() {
    this.node.dataset.stale = "";
  }

  connect() {
    const wasLost = "stale" in this.node.dataset;
    delete this.node.dataset.stale;
    if (wasLost) this.history.read();
  }

  zoom(ms, byHand) {
    this.zoomed ||= byHand;
    this.timeline.zoom(ms);
  }

  showZoom() {
    for (const button of this.zoomBar.querySelectorAll("[data-ms]")) {
      const is = this.timeline.range === null && Number(button.dataset.ms) === this.timeline.windowMs;
      button.setAttribute("aria-pressed", String(is));
    }
  }

  // ------------------------------------------------------------------ showing

  /** What moves by itself, whether the sidecar still speaks or not. */
  tick() {
    const { election } = this;
    if (!election.view) return;
    const known = election.known();
    const { leader, unknown, remaining = null } = known;
    this.showLeader(known);
    this.showFacts(known);
    this.showNotes(known);
    // Rows say other things once nothing is known, or nothing can be asked for.
    const mode = `${Boolean(leader)} ${Boolean(unknown)} ${election.canBeAsked()}`;
    if (mode !== this.mode) {
      this.mode = mode;
      this.members.show(election);
    }
    // Leases may differ: the leader's is the one that runs out.
    const holder = election.view.members.find((member) => member.leads);
    const ttl_ms = holder ? holder.ttl_ms : election.view.ttl_ms;
    this.timeline.lease(remaining, ttl_ms);
    this.timeline.doubt(unknown ? Date.now() - unknown.since : null);
    this.history.doubt(Boolean(unknown));
    this.timeline.frame();
    const share = remaining === null || !ttl_ms ? 0 : Math.min(1, remaining / ttl_ms);
    this.arc.setAttribute("stroke-dashoffset", String(RING * (1 - share)));
    say(this.left, remaining === null ? "–" : (remaining / 1000).toFixed(1));
    say(this.leftUnit, remaining === null ? "no lease" : "s of lease");
  }

  showLeader({ leader, vacancy, unknown }) {
    const { view } = this.election;
    const { level, word } = this.election.state();
    say(this.key, view.key);
    say(this.pill, level === "good" || level === "off" ? standing(view) : word);
    this.pill.dataset.level = level === "good" && !view.is_leader ? "off" : level;
    this.node.dataset.led = String(Boolean(leader));
    this.node.dataset.level = level;
    say(this.leader, leader ? leader.instance : unknown ? "Unknown" : vacancy ? "Nobody" : "…");
    this.leader.title = plain(leader?.id ?? "");
    const canBeAsked = this.election.canBeAsked();
    const isPaused = view.paused_for_ms !== null;
    this.resign.hidden = !canBeAsked || !leader || leader.foreign;
    this.pause.hidden = !canBeAsked || isPaused;
    this.resume.hidden = !canBeAsked || !isPaused;
  }

  showFacts({ leader, vacancy, unknown }) {
    const facts = [];
    if (unknown) {
      facts.push([`since ${when(unknown.since)}`, utc(unknown.since)]);
      facts.push([unknown.last ? `last seen ${unknown.last.instance}` : "last seen nobody", unknown.last?.id]);
      if (unknown.last?.token) facts.push([`token ${unknown.last.token}`]);
    } else if (!leader) {
      facts.push([vacancy ? vacancy.code : "waiting for the store"]);
      if (vacancy?.left_ms) facts.push([`${duration(vacancy.left_ms - this.election.age())} left`]);
    } else {
      const since = this.election.ledSince();
      if (since !== null) {
        facts.push([`since ${when(since)}`, utc(since)]);
        facts.push([`for ${lasting(Date.now() - since)}`]);
      }
      if (leader.token !== null) facts.push([`token ${leader.token}`]);
      facts.push(leader.foreign ? ["a foreign program"] : [`id ${leader.id}`]);
    }
    while (this.facts.children.length > facts.length) this.facts.lastElementChild.remove();
    while (this.facts.children.length < facts.length) this.facts.append(el("span"));
    facts.forEach(([fact, more], index) => {
      say(this.facts.children[index], fact);
      hint(this.facts.children[index], more);
    });
  }

  /** All that an operator should read before doing anything, the worst first. */
  showNotes({ leader, vacancy, unknown }) {
    const { view } = this.election;
    const notes = [];
    if (unknown) notes.push(["bad", this.election.whyUnknown()]);
    else if (view.store.error) notes.push(["bad", view.store.error]);
    for (const warning of view.warnings) notes.push(["warn", warning]);
    if (vacancy) notes.push([vacancy.code === "free" ? "bad" : "warn", vacancy.text]);
    if (leader && ["suspect", "stopped"].includes(view.role) && view.reason) notes.push(["warn", view.reason.text]);
    const paused = this.election.pausedFor();
    if (paused !== null) notes.push(["warn", `Paused for ${lasting(paused)} more, until ${when(Date.now() + paused)}: no instance begins a new term.`]);
    if (view.wish && !unknown) notes.push(["warn", wishText(view.wish)]);
    const once = notes.filter(([, text], index) => notes.findIndex(([, other]) => other === text) === index);
    while (this.notes.children.length > once.length) this.notes.lastElementChild.remove();
    while (this.notes.children.length < once.length) this.notes.append(el("p", { class: "note" }));
    once.forEach(([level, text], index) => {
      const note = this.notes.children[index];
      note.dataset.level = level;
      say(note, text);
    });
  }

  showLatency() {
    const { view, trips } = this.election;
    const own = view.renewals_ms.length > 0;
    const values = own ? view.renewals_ms : trips;
    say(this.latencyTitle, own ? "Renewals" : "Round trips to the store");
    if (values.length === 0) return arrange(this.latency, [el("p", { class: "quiet" }, "None yet.")]);
    const sorted = [...values].sort((a, b) => a - b);
    const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
    const figures = el("dl", { class: "figures" }, ...[["last", values.at(-1)], ["median", at(0.5)], ["p99", at(0.99)]]
      .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, fine(value)))));
    this.latency.replaceChildren(figures, sparkline(values, at(1)));
  }

  // ------------------------------------------------------------------ asking

  askResign() {
    const { leader } = this.election.known();
    if (!leader) return undefined;
    return ask({
      title: `Let ${leader.instance} resign?`,
      text: `${leader.instance} leads ${this.name}. It is asked to stop its work and to release the leadership; another instance then takes over.`,
      yes: "Resign",
      // The answer may take a while: whoever leads by then was not meant.
      act: () => post(`resign/${this.path}`, { token: leader.token }),
    });
  }

  askHandOver(member) {
    const { leader } = this.election.known();
    if (!leader) return undefined;
    return ask({
      title: `Hand over to ${member.instance}?`,
      text: `${leader.instance} leads ${this.name}. It is asked to stop its work; then ${member.instance} (${member.id}) takes over, after about a round trip.`,
      yes: "Hand over",
      act: () => post(`hand-over/${this.path}`, { to: member.id, token: leader.token }),
    });
  }

  askPause() {
    const { leader } = this.election.known();
    const goesOn = leader ? `The term of ${leader.instance} goes on; if it ends, nobody leads.` : "Nobody leads now, and nobody will.";
    return askPause({
      title: `Pause ${this.name}?`,
      text: `No instance begins a new term until the pause ends or somebody resumes. ${goesOn}`,
      act: async (ms) => {
        const answer = await post(`pause/${this.path}`, { for_ms: ms });
        return answer.done ? { ...answer, text: `Paused until ${when(Date.now() + ms)}.` } : answer;
      },
    });
  }

  askResume() {
    return ask({
      title: `Resume ${this.name}?`,
      text: "The pause ends at once, and an instance may begin a new term.",
      yes: "Resume",
      act: async () => {
        const answer = await post(`resume/${this.path}`);
        return answer.done ? { ...answer, text: "Resumed." } : answer;
      },
    });
  }
}

function standing(view) {
  if (!view.enabled) return "switched off";
  if (!view.takes_part) return "observer";
  if (view.role === "leader") return "leads here";
  return view.role;
}

function wishText(wish) {
  if (wish.refused) return `The leader refused: ${wish.refused}`;
  const what = wish.kind === "hand-over" ? `to hand over to ${wish.to}` : "to resign";
  return `The leader is asked ${what}, by ${wish.by}.`;
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
