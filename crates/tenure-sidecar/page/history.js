// The terms of one election as the store remembers them: read from the sidecar a part at a time,
// shown by pages, newest first.

import { duration, el, ending, say, startOf, utc, when, zone } from "./words.js";
import { get } from "./wire.js";

const PER_PAGE = 12;
/** Entries to ask for at a time; a term has two. */
const ENTRIES_READ = 200;

export class History {
  constructor(name, onChange) {
    this.path = `history/${encodeURIComponent(name)}`;
    this.onChange = onChange;
    /** Oldest first. */
    this.terms = [];
    this.running = false;
    this.isDoubted = false;
    this.isRead = false;
    this.hasEarlier = false;
    this.page = 0;
    this.reading = null;
    this.node = this.build();
  }

  build() {
    const heads = ["Token", "Instance", "Began", "Ended", "Lasted", "How it ended", "Gap before"];
    this.body = el("tbody");
    this.place = el("span", { class: "soft place" });
    this.newer = el("button", { class: "small", onclick: () => this.turn(-1) }, "Newer");
    this.older = el("button", { class: "small", onclick: () => this.turn(1) }, "Older");
    return el("div", { class: "block history" },
      el("div", { class: "block-head" }, el("h3", {}, "History"),
        el("div", { class: "pages", role: "group", "aria-label": "Pages of the history" }, this.place, this.newer, this.older)),
      el("div", { class: "scroll" }, el("table", { class: "terms" },
        el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))), this.body)),
      el("p", { class: "soft small-print" }, `Times are by the store's clock, in ${zone()}.`));
  }

  /** Whether nobody can tell who leads: then no term is known to run. */
  doubt(is) {
    if (this.isDoubted === is) return;
    this.isDoubted = is;
    this.show();
  }

  /** Reads the latest terms; one at a time, and once more if asked for meanwhile. */
  async read() {
    if (this.reading !== null) {
      this.again = true;
      return;
    }
    this.reading = this.readLatest();
    await this.reading;
    this.reading = null;
    if (this.again) {
      this.again = false;
      await this.read();
    }
  }

  async readLatest() {
    const answer = await get(`${this.path}?count=${ENTRIES_READ}`).catch(() => null);
    // The stream says when the connection is gone; the next change asks again.
    if (answer === null) return this.show();
    this.isRead = true;
    const first = answer.terms[0]?.token ?? Infinity;
    const known = this.terms.filter((term) => term.token < first);
    // A hole in between would be drawn as a time in which nobody led.
    const meets = this.terms.some((term) => term.token === first);
    if (!meets) this.hasEarlier = answer.earlier;
    const [server, here] = [Date.parse(answer.server_time ?? new Date()), performance.now()];
    this.clock = () => server + performance.now() - here;
    this.running = answer.running;
    this.take(meets ? joined(known, answer.terms, this.terms) : answer.terms);
  }

  /** Reads what was before the oldest that is known. */
  async readEarlier() {
    if (!this.hasEarlier || this.readingEarlier || this.terms.length < 2) return;
    this.readingEarlier = true;
    // From the second on: what was before the first is known only with the one before it.
    const before = this.terms[1].token;
    const answer = await get(`${this.path}?count=${ENTRIES_READ}&before=${before}`).catch(() => null);
    this.readingEarlier = false;
    if (answer === null || this.terms[1]?.token !== before) return;
    this.hasEarlier = answer.earlier;
    this.take([...answer.terms, ...this.terms.slice(1)]);
  }

  take(terms) {
    this.terms = terms;
    this.show();
    this.onChange(this);
  }

  async turn(by) {
    const page = Math.max(0, this.page + by);
    if ((page + 1) * PER_PAGE > this.terms.length) await this.readEarlier();
    if (page * PER_PAGE < this.terms.length) this.page = page;
    this.show();
  }

  show() {
    const from = this.page * PER_PAGE;
    const shown = [...this.terms].reverse().slice(from, from + PER_PAGE);
    const starts = new Map();
    for (const term of this.terms) {
      starts.set(term.instance, (starts.get(term.instance) ?? new Set()).add(term.id));
    }
    const running = this.running && !this.isDoubted ? this.terms.at(-1) : null;
    this.body.replaceChildren(...shown.map((term) =>
      row(term, term === running, starts.get(term.instance).size > 1)));
    const more = this.hasEarlier ? "+" : "";
    const last = from + shown.length;
    say(this.place, this.terms.length === 0 ? (this.isRead ? "no terms yet" : "not known yet") : `${from + 1}–${last} of ${this.terms.length}${more}`);
    this.newer.disabled = this.page === 0;
    this.older.disabled = last >= this.terms.length && !this.hasEarlier;
  }
}

/** What is older, then the latest; where both know a term, whoever knows what was before it. */
function joined(older, latest, known) {
  const [first, ...rest] = latest;
  const same = known.find((term) => term.token === first.token);
  return [...older, { ...first, gap_ms: first.gap_ms ?? same.gap_ms, quarantined: first.quarantined ?? same.quarantined }, ...rest];
}

function row(term, isRunning, isAmbiguous) {
  const ended = term.ended_at ? moment(term.ended_at) : isRunning ? "leads now" : "not known";
  const lasted = term.ended_at ? duration(Date.parse(term.ended_at) - Date.parse(term.began_at)) : "–";
  const how = [ending(term.reason), term.detail].filter(Boolean).join(": ");
  const gap = [duration(term.gap_ms), term.quarantined ? "quarantine" : null].filter(Boolean).join(", ");
  return el("tr", { data: { token: term.token, leads: isRunning } },
    el("td", { class: "token" }, String(term.token)),
    el("th", { scope: "row", title: term.id }, term.instance, isAmbiguous ? el("code", { class: "start" }, startOf(term)) : null),
    el("td", { class: "number" }, moment(term.began_at)),
    el("td", { class: "number" }, ended),
    el("td", { class: "number" }, lasted),
    el("td", { class: "how", title: how }, how),
    el("td", { class: "number gap", title: term.quarantined, data: { known: term.gap_ms !== null } }, gap));
}

function moment(at) {
  return el("time", { datetime: at, title: utc(at) }, when(at));
}
