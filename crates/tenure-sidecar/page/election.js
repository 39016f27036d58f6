// One election as the page knows it: what is known now, whether that is trouble, what can be asked.

import { ageOf, reading } from "./clock.js";
import { when } from "./words.js";

const TRIPS_KEPT = 120;
// How long what has no lease is believed: the sidecar says something every second.
const BELIEVED_MAX = 10e3;
// A hand-over is no trouble: the order follows what has lasted this long.
const SETTLED_AFTER = 1500;
// Two readings of when a term began differ by what the messages took.
const SINCE_GRAIN = 2000;

const RANK = { bad: 0, warn: 1, good: 2, off: 2 };
const VACANCIES = {
  paused: ["warn", "paused"],
  quarantine: ["warn", "quarantine"],
  reserved: ["warn", "handing over"],
  ending: ["warn", "stepping down"],
  unconfirmed: ["bad", "unconfirmed"],
};

export class Election {
  constructor(name) {
    this.name = name;
    this.view = null;
    this.trips = [];
    this.lost = false;
    this.rank = null;
    this.led = { token: null, since: null };
  }

  /** Its state, as of now. */
  update(view) {
    this.view = view;
    this.receivedAt = reading();
    if (view.store.round_trip_ms !== null) {
      this.trips.push(view.store.round_trip_ms);
      if (this.trips.length > TRIPS_KEPT) this.trips.shift();
    }
  }

  age() {
    return ageOf(this.view.as_of_ms, this.receivedAt);
  }

  /**
   * What is known at this moment: { leader, remaining }, { vacancy } or { unknown }. A lease that is
   * over says nothing, whoever held it; nor does a word that came too late.
   */
  known() {
    if (!this.view) return {};
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

  /** Whether the store is silent, as the sidecar said last. */
  missesStore() {
    return this.view?.store.state === "down";
  }

  /** Since when the sidecar says nothing, once what it said last is over; null while it speaks. */
  silentSince() {
    if (!this.view || this.view.unknown || !this.known().unknown) return null;
    return Date.now() - this.age();
  }

  /** When the leader's term began, by the clock of this browser; it does not flicker. */
  ledSince() {
    const { leader } = this.view;
    if (!leader || leader.leads_for_ms === null) return null;
    const since = Date.now() - leader.leads_for_ms - this.age();
    const same = this.led.token === leader.token && Math.abs(this.led.since - since) < SINCE_GRAIN;
    if (!same) this.led = { token: leader.token, since };
    return this.led.since;
  }

  /** How long it is still paused; null if it is not, or nobody can tell. */
  pausedFor() {
    const left = this.view?.paused_for_ms ?? null;
    if (left === null || this.known().unknown) return null;
    return Math.max(0, left - this.age());
  }

  /** Whether a request to the store could work at all, as far as can be told. */
  canBeAsked() {
    return Boolean(this.view) && this.view.enabled && !this.lost && !this.missesStore()
      && this.view.store.state === "up" && !this.known().unknown;
  }

  /** Its state in a word, how bad that is, and why. */
  state() {
    if (!this.view) return state("off", "not known yet", null);
    const { view } = this;
    const { leader, vacancy, unknown } = this.known();
    if (!view.enabled) return state("off", "switched off", "elections are switched off: it leads without a store");
    if (unknown) return state("bad", "unknown", this.silentSince() === null ? this.ownError() : this.whyUnknown());
    const complaint = this.ownError() ?? view.warnings.find((warning) => warning !== view.store.error) ?? null;
    if (vacancy) {
      const [level, word] = VACANCIES[vacancy.code] ?? ["bad", "nobody leads"];
      return state(level, word, complaint ?? vacancy.text);
    }
    if (!leader) return notKnownYet(view);
    if (this.missesStore()) return state("bad", "store unreachable", complaint);
    if (leader.foreign) return state("warn", "foreign leader", complaint ?? "another program holds the key");
    if (view.role === "suspect") return state("warn", "renewal failed", complaint ?? view.reason?.text);
    if (view.role === "stopped") return state("warn", "stopped here", complaint ?? view.reason?.text);
    if (complaint !== null) return state("warn", "warning", complaint);
    if (view.paused_for_ms !== null) return state("warn", "paused", "no instance can begin a new term");
    return state("good", "ok", null);
  }

  /** What the store says about this election alone. That it is silent is said once for all. */
  ownError() {
    return this.missesStore() ? null : this.view.store.error;
  }

  whyUnknown() {
    const since = this.silentSince();
    if (since !== null) return `The sidecar has been silent since ${when(since)}.`;
    return this.view.store.error ?? "The store has been silent since then.";
  }

  /** Its place among others: trouble first, once it has lasted for a moment. */
  place() {
    const rank = RANK[this.state().level];
    const now = performance.now();
    if (this.rank === null || rank === this.rank) {
      this.rank = rank;
      this.turnedAt = null;
      return rank;
    }
    this.turnedAt ??= now;
    if (now - this.turnedAt >= SETTLED_AFTER) {
      this.rank = rank;
      this.turnedAt = null;
    }
    return this.rank;
  }

  isTrouble() {
    return this.place() < RANK.good;
  }

  /** Whether all words are in its name, its leader, its members or its state. */
  matches(words) {
    if (words.length === 0) return true;
    const { leader, unknown } = this.known();
    const members = this.view?.members ?? [];
    const text = [this.name, this.state().word, leader?.id, unknown?.last?.id, leader?.token,
      ...members.map((member) => member.id)].filter(Boolean).join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  }
}

function state(level, word, why) {
  return { level, word, why: why ?? null };
}

function notKnownYet(view) {
  if (view.store.state !== "down") return state("off", "connecting", "waiting for the store's first answer");
  return state("bad", "not known yet", null);
}
