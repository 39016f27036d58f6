// All elections, a line each: trouble first, then by name.

import { arrange, duration, el, hint, lasting, naturally, say, svg, utc, when } from "./words.js";

const FILTERS = [
  { code: "all", text: "All", has: () => true },
  { code: "trouble", text: "Trouble", has: (election) => election.isTrouble() },
  { code: "here", text: "Led here", has: (election) => Boolean(election.view?.is_leader) },
];
const COLUMNS = [["Election", ""], ["State", ""], ["Leader", ""], ["Since", ""],
  ["Lease left", ""], ["Token", ""], ["Members", "number"], ["Note", ""]];
const GAUGE = 44;

/** The address of the view of one election. */
export const addressOf = (name) => `#/e/${encodeURIComponent(name)}`;

export class List {
  constructor(elections) {
    this.elections = elections;
    this.rows = new Map();
    this.filter = FILTERS[0];
    this.node = this.build();
  }

  build() {
    this.search = el("input", {
      type: "search", id: "search", placeholder: "Search  /", autocomplete: "off", spellcheck: "false",
      "aria-label": "Search elections by name, leader, member or state", oninput: () => this.show(),
    });
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.clear();
    });
    this.filters = FILTERS.map((filter) => {
      const count = el("b");
      const button = el("button", { data: { filter: filter.code }, onclick: () => this.choose(filter) },
        `${filter.text} `, count);
      return { filter, count, button };
    });
    this.body = el("tbody");
    this.problem = el("p", { class: "note", hidden: true });
    this.nothing = el("p", { class: "quiet nothing", hidden: true });
    const heads = COLUMNS.map(([text, kind]) => el("th", { scope: "col", class: kind || null }, text));
    return el("section", { class: "overview", "aria-label": "Elections" },
      el("div", { class: "bar-of-list" },
        el("div", { class: "zoom", role: "group", "aria-label": "Which elections" }, ...this.filters.map((one) => one.button)),
        this.search),
      this.problem,
      el("table", { class: "elections" }, el("thead", {}, el("tr", {}, ...heads)), this.body),
      this.nothing);
  }

  choose(filter) {
    this.filter = filter;
    this.show();
  }

  clear() {
    this.search.value = "";
    this.show();
  }

  /** Called often: changes only what differs. */
  show() {
    const all = [...this.elections.values()];
    for (const { filter, count, button } of this.filters) {
      say(count, String(all.filter((election) => filter.has(election)).length));
      button.setAttribute("aria-pressed", String(filter === this.filter));
      if (filter.code === "trouble") button.dataset.any = String(count.textContent !== "0");
    }
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = all.filter((election) => this.filter.has(election) && election.matches(words));
    shown.sort((a, b) => a.place() - b.place() || naturally(a.name, b.name));
    arrange(this.body, shown.map((election) => this.row(election).node));
    for (const election of shown) this.row(election).show();
    const silent = all.find((election) => election.missesStore());
    this.problem.hidden = !silent;
    if (silent) say(this.problem, silent.view.store.error ?? "The store does not answer.");
    this.nothing.hidden = shown.length > 0 || all.length === 0;
    if (!this.nothing.hidden) say(this.nothing, this.nothingText(words));
  }

  nothingText(words) {
    if (words.length > 0) return `No election matches “${words.join(" ")}”. Escape shows all.`;
    return this.filter.code === "trouble" ? "No election is in trouble." : "This instance leads no election.";
  }

  row(election) {
    if (!this.rows.has(election.name)) this.rows.set(election.name, new Row(election));
    return this.rows.get(election.name);
  }

  /** It was left; one of this name that is joined later is another one. */
  forget(name) {
    this.rows.delete(name);
  }
}

class Row {
  constructor(election) {
    this.election = election;
    this.word = el("span");
    this.leader = el("span", { class: "name" });
    this.self = el("span", { class: "self", hidden: true }, "this one");
    this.since = el("time");
    this.length = el("span", { class: "soft" });
    this.level = svg("rect", { class: "level", height: 6, rx: 3 });
    this.gauge = svg("svg", { viewBox: `0 0 ${GAUGE} 6`, "aria-hidden": "true" },
      svg("rect", { class: "base", width: GAUGE, height: 6, rx: 3 }), this.level);
    this.left = el("span");
    this.lease = el("td", { class: "lease" }, el("span", { class: "pulse" }, this.gauge, this.left));
    this.token = el("td", { class: "token" });
    this.members = el("td", { class: "number members-count" });
    this.why = el("td", { class: "why" });
    this.node = el("tr", { data: { name: election.name }, onclick: (event) => this.open(event) },
      el("th", { scope: "row" }, el("a", { href: addressOf(election.name) }, election.name)),
      el("td", { class: "state" }, el("span", { class: "sign", "aria-hidden": "true" }), this.word),
      el("td", { class: "leads" }, this.leader, this.self),
      el("td", { class: "since" }, this.since, this.length),
      this.lease, this.token, this.members, this.why);
  }

  /** The whole line leads there, except while somebody selects its text. */
  open(event) {
    if (event.target.closest("a") || String(getSelection()) !== "") return;
    location.hash = addressOf(this.election.name);
  }

  show() {
    const { election } = this;
    const state = election.state();
    const known = election.known();
    if (this.node.dataset.level !== state.level) this.node.dataset.level = state.level;
    say(this.word, state.word);
    say(this.why, state.why ?? "");
    hint(this.why, state.why);
    this.showLeader(known);
    this.showLease(known);
    this.showMembers(known);
  }

  showLeader({ leader, vacancy, unknown }) {
    const { view } = this.election;
    const last = unknown?.last;
    say(this.leader, leader ? leader.instance : last ? `last seen ${last.instance}` : vacancy || unknown ? "nobody" : "–");
    hint(this.leader, leader?.id ?? last?.id);
    this.self.hidden = !(leader && view.is_leader);
    const since = leader ? this.election.ledSince() : unknown ? unknown.since : null;
    say(this.since, since === null ? "" : when(since));
    if (since !== null) hint(this.since, utc(since));
    say(this.length, since === null ? "" : lasting(Date.now() - since));
    const token = (leader ?? last)?.token ?? null;
    say(this.token, token === null ? "" : String(token));
  }

  showLease({ leader, remaining = null }) {
    const { view } = this.election;
    this.lease.dataset.shown = String(Boolean(leader));
    if (!leader) return say(this.left, "");
    const holder = view.members.find((member) => member.leads);
    const length = holder ? holder.ttl_ms : view.ttl_ms;
    this.gauge.toggleAttribute("hidden", remaining === null || !length);
    const share = remaining === null || !length ? 0 : Math.min(1, remaining / length);
    this.level.setAttribute("width", (GAUGE * share).toFixed(1));
    say(this.left, remaining === null ? "no end" : remaining < 100e3 ? `${(remaining / 1000).toFixed(1)} s` : lasting(remaining));
    const renewed = view.is_leader && view.renewed_ms_ago !== null ? view.renewed_ms_ago + this.election.age() : null;
    hint(this.lease, renewed === null ? `of ${duration(length)}` : `of ${duration(length)}, renewed ${duration(renewed)} ago`);
  }

  showMembers({ unknown }) {
    const members = this.election.view?.members ?? [];
    const alive = members.filter((member) => member.alive).length;
    const text = alive === members.length ? String(alive) : `${alive} of ${members.length}`;
    say(this.members, unknown || !this.election.view ? "–" : text);
    hint(this.members, unknown ? "" : `${alive} alive: ${members.filter((m) => m.alive).map((m) => m.instance).join(", ")}`);
  }
}
