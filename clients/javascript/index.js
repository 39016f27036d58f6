// Elections, locks and jobs over the HTTP of a Tenure sidecar. No dependencies.
//
// What is told lost is told before anybody else can begin: each term has a deadline of its own,
// counted from before the request was sent. Only a token that the resource itself checks keeps a
// late write out.

import { randomBytes } from "node:crypto";
import http from "node:http";
import https from "node:https";

/** How long to wait for an answer that has nothing to wait for, in milliseconds. */
const REQUEST_TIMEOUT = 5_000;
/** How long the sidecar may hold an answer back until there is news. */
const NEWS_WAIT = 15_000;
/** How soon to ask again after a failure. */
const RETRY_AFTER = 200;
/** An answer longer than this is none of the sidecar's. */
const ANSWER_LEN_MAX = 4 * 1024 * 1024;
/** The longest time that a timer of Node counts. */
const TIMER_MAX = 2 ** 31 - 1;

/** What went wrong. `code` is a stable word, the message says what to do. */
export class TenureError extends Error {
  constructor(message, code = "", status = 0) {
    super(message);
    this.name = new.target.name;
    this.code = code;
    this.status = status;
  }
}
/** The sidecar, or the store behind it, does not answer. */
export class Unavailable extends TenureError {}
/** The request was wrong: repeating it does not help. */
export class Refused extends TenureError {}
/** Somebody else is in the way; `code` says how. */
export class Conflict extends TenureError {}
/** Another holds the lock. */
export class NotAcquired extends Conflict {}
/** It is not held any more, and another may have worked since. */
export class Lost extends TenureError {}

/** A reading of both clocks. */
function reading() {
  return { steady: performance.now(), wall: Date.now() };
}

/**
 * How many milliseconds have passed. The steady clock stands still while the machine sleeps, and
 * the wall clock may be set: the longer of the two is on the safe side.
 */
function passed(since) {
  return Math.max(performance.now() - since.steady, Date.now() - since.wall, 0);
}

/**
 * What may be acted on for a while: a leadership, a lock, or a tick that runs.
 *
 * It is never valid again once it was lost.
 */
export class Term {
  #sent;
  #validFor;
  #timer;
  #controller = new AbortController();

  constructor(name, token, sent, validFor) {
    this.name = name;
    this.token = token;
    this.lostBecause = undefined;
    this.#sent = sent;
    this.#validFor = validFor;
    this.#wind();
  }

  /** Aborted when it must not be acted on any more. */
  get signal() {
    this.remaining();
    return this.#controller.signal;
  }

  /** Whether to go on. No I/O; right even if the event loop has not turned for a while. */
  isValid() {
    return this.remaining() > 0;
  }

  /** How many milliseconds are left unless it is renewed. */
  remaining() {
    if (this.lostBecause !== undefined) return 0;
    const left = this.#validFor - passed(this.#sent);
    if (left > 0) return left;
    this._lose("not renewed in time");
    return 0;
  }

  /** Throws `Lost` unless it is valid. */
  check() {
    if (!this.isValid()) throw new Lost(`${this.name}: ${this.lostBecause}`, "lost");
  }

  _extend(sent, validFor) {
    if (!this.isValid()) return false;
    if (validFor - passed(sent) > this.#validFor - passed(this.#sent)) {
      this.#sent = sent;
      this.#validFor = validFor;
    }
    this.#wind();
    return this.isValid();
  }

  _lose(why) {
    if (this.lostBecause !== undefined) return;
    this.lostBecause = why;
    clearTimeout(this.#timer);
    this.#controller.abort(new Lost(`${this.name}: ${why}`, "lost"));
  }

  #wind() {
    clearTimeout(this.#timer);
    const left = this.remaining();
    if (left <= 0) return;
    this.#timer = setTimeout(() => this.#wind(), Math.min(Math.ceil(left), TIMER_MAX));
    this.#timer.unref();
  }
}

function body(fields) {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

function path(kind, name, verb, words = {}) {
  const query = new URLSearchParams(body(words)).toString();
  return `/${kind}/${encodeURIComponent(name)}${verb ? `/${verb}` : ""}${query ? `?${query}` : ""}`;
}

function drawOwner() {
  return randomBytes(24).toString("base64url");
}

function readAnswer(status, text) {
  let answer;
  try {
    answer = JSON.parse(text);
  } catch (error) {
    throw new Unavailable(`the answer is not JSON: is this a sidecar? ${error}`, "odd", status);
  }
  if (status >= 200 && status < 300) return answer;
  const Kind =
    status === 404 || status === 409
      ? Conflict
      : status >= 500
        ? Unavailable
        : status >= 400
          ? Refused
          : TenureError;
  throw new Kind(answer?.error ?? `status ${status}`, answer?.code ?? "", status);
}

/** A sidecar: `http://…`, `https://…` or `unix:/path`. Nothing is sent before it is asked for. */
export class Client {
  #options;
  #transport;
  #prefix = "";

  constructor(url = "http://127.0.0.1:8420", { token, ca } = {}) {
    const headers = { accept: "application/json" };
    if (token !== undefined) headers.authorization = `Bearer ${token}`;
    this.#transport = http;
    if (url.startsWith("unix:")) {
      headers.host = "localhost";
      this.#options = { socketPath: url.slice("unix:".length), headers };
      return;
    }
    const parts = URL.canParse?.(url) === false ? undefined : parsed(url);
    if (!parts || !["http:", "https:"].includes(parts.protocol)) {
      throw new Refused(`${url} is not http://…, https://… or unix:/path`, "bad-address");
    }
    if (parts.protocol === "https:") this.#transport = https;
    this.#prefix = parts.pathname.replace(/\/+$/, "");
    const host = parts.hostname.replace(/^\[|\]$/g, "");
    this.#options = { host, port: parts.port || undefined, ca, headers };
  }

  /** Sends one request and returns its answer. docs/sidecar.md lists the routes. */
  request(method, route, content, timeout = REQUEST_TIMEOUT) {
    const data = content === undefined ? undefined : JSON.stringify(content);
    const headers = { ...this.#options.headers };
    if (data !== undefined) {
      headers["content-type"] = "application/json";
      headers["content-length"] = Buffer.byteLength(data);
    }
    const options = { ...this.#options, method, path: this.#prefix + route, headers, agent: false };
    return new Promise((resolve, reject) => {
      const fail = (why) => {
        clearTimeout(timer);
        request.destroy();
        reject(new Unavailable(`the sidecar does not answer: ${why}`, "unreachable"));
      };
      const request = this.#transport.request(options, (response) => {
        const parts = [];
        let length = 0;
        response.on("data", (part) => {
          length += part.length;
          if (length > ANSWER_LEN_MAX) fail("its answer is too long");
          else parts.push(part);
        });
        response.on("error", (error) => fail(error.message));
        response.on("aborted", () => fail("it hung up"));
        response.on("end", () => {
          clearTimeout(timer);
          try {
            resolve(readAnswer(response.statusCode, Buffer.concat(parts).toString()));
          } catch (error) {
            reject(error);
          }
        });
      });
      const timer = setTimeout(() => fail(`nothing within ${timeout} ms`), timeout);
      request.on("error", (error) => fail(error.message));
      request.end(data);
    });
  }

  /** Whether the sidecar leads `name` at the moment, for elections of its configuration. */
  async isLeader(name) {
    try {
      return (await this.request("GET", path("leader", name))).is_leader === true;
    } catch (error) {
      if (error instanceof Unavailable) return false;
      throw error;
    }
  }

  /** Everything that the sidecar knows. */
  status() {
    return this.request("GET", "/status");
  }

  /** Takes part in an election; see `Election`. */
  async election(name, settings = {}) {
    const election = new Election(this, name, settings);
    await election.join();
    return election;
  }

  /** Takes a lock. Throws `NotAcquired` if another holds it. */
  async acquire(name, { wait = 0, within = 10_000, ttl } = {}) {
    const owner = drawOwner();
    const asked = { owner, wait_ms: wait, within_ms: within, ttl_ms: ttl };
    const sent = reading();
    let answer;
    try {
      answer = await this.request("POST", path("locks", name), body(asked), wait + REQUEST_TIMEOUT);
    } catch (error) {
      if (!(error instanceof Conflict)) throw error;
      throw new NotAcquired(error.message, error.code, error.status);
    }
    const keeper = new HoldKeeper(this, "locks", name, owner);
    const pause = keeper.settle(sent, answer);
    if (!keeper.term) throw new NotAcquired(`${name}: the answer came too late`, "late");
    keeper.start(pause);
    return new Lock(this, name, owner, keeper);
  }

  /** Runs `work(term)` under a lock, and releases it. Throws `Lost` if it was lost meanwhile. */
  async withLock(name, settings, work) {
    const lock = await this.acquire(name, settings);
    let result;
    try {
      result = await work(lock.term);
    } catch (error) {
      await lock.release().catch(() => {});
      throw error;
    }
    await lock.release();
    return result;
  }

  /**
   * Begins a tick of a job; say which with one of `every` (milliseconds), `number` and `named`.
   * `state` of the result is "begun", or says why it is not run here.
   */
  async tick(name, { every, number, named, wait = 0, within = 10_000, ttl, rerunCrashed } = {}) {
    const owner = drawOwner();
    const which = body({ every_ms: every, number, named });
    const limits = { wait_ms: wait, within_ms: within, ttl_ms: ttl, rerun_crashed: rerunCrashed };
    const asked = body({ owner, ...which, ...limits });
    const sent = reading();
    try {
      const patience = wait + REQUEST_TIMEOUT;
      const answer = await this.request("POST", path("ticks", name), asked, patience);
      if (answer.state !== "begun") return new Tick(this, name, owner, answer.state);
      const keeper = new HoldKeeper(this, "ticks", name, owner);
      const pause = keeper.settle(sent, answer);
      if (!keeper.term) return new Tick(this, name, owner, "late");
      keeper.start(pause);
      return new Tick(this, name, owner, "begun", keeper);
    } catch (error) {
      if (error instanceof Conflict) return new Tick(this, name, owner, error.code);
      throw error;
    }
  }

  /** The state of a tick, as the store has it. */
  lookAtTick(name, { every, number, named }) {
    return this.request("GET", path("ticks", name, "", { every_ms: every, number, named }));
  }

  /** Runs `work(term)` once per tick: `{ state, result }`. What it throws is a failure. */
  async once(name, settings, work) {
    const tick = await this.tick(name, settings);
    if (!tick.begun) return { state: tick.state };
    let result;
    try {
      result = await work(tick.term);
    } catch (error) {
      await tick.finish("failed", String(error)).catch(() => {});
      throw error;
    }
    await tick.finish();
    return { state: tick.state, result };
  }
}

function parsed(url) {
  try {
    return new URL(url);
  } catch {
    return undefined;
  }
}

/** Renews, and passes on what it hears. The deadline is the term's own affair. */
class Keeper {
  term = undefined;
  closed = false;
  /** The token of the term that this program does not want any more. */
  resigned = undefined;
  #waiting = new Set();
  #timer;

  constructor(name) {
    this.name = name;
  }

  /** Keeps the program alive until it is closed: it would lose what it holds by ending unseen. */
  start(pause = 0) {
    this.#timer = setTimeout(() => this.#turn(), pause);
  }

  close(why) {
    this.closed = true;
    clearTimeout(this.#timer);
    this.lose(why);
  }

  lose(why) {
    const term = this.term;
    this.term = undefined;
    term?._lose(why);
    this.#tell();
  }

  /** Resolves at the next news. */
  news() {
    return new Promise((resolve) => this.#waiting.add(resolve));
  }

  #tell() {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const resolve of waiting) resolve();
  }

  /** Takes an answer in, and returns how soon to ask again. */
  settle(sent, answer) {
    const { token, valid_for_ms: validFor = 0 } = answer;
    if (token === undefined || validFor <= 0 || token === this.resigned) {
      this.lose("another leads, or nobody");
      // An answer that came at once need not be followed by a question at once.
      return Math.max(0, RETRY_AFTER - passed(sent));
    }
    if (this.term?.token !== token || !this.term._extend(sent, validFor)) {
      this.lose("a later term began");
      const term = new Term(this.name, token, sent, validFor);
      if (!this.closed && term.isValid()) this.term = term;
      else term._lose("closed");
      this.#tell();
    }
    return Math.max(20, validFor / 4);
  }

  /** How long a request may take: what is held has to be renewed, or asked for once more. */
  patience() {
    const left = this.term?.remaining() ?? 0;
    return left > 0 ? Math.min(REQUEST_TIMEOUT, Math.max(50, left / 2)) : REQUEST_TIMEOUT;
  }

  async #turn() {
    let pause;
    try {
      pause = await this.ask();
    } catch {
      // Whatever it is, the deadline stands; ask again.
      const left = this.term?.remaining() ?? 0;
      pause = left > 0 ? Math.min(RETRY_AFTER, Math.max(20, left / 8)) : RETRY_AFTER;
    }
    if (!this.closed && pause >= 0) this.start(pause);
  }
}

class ElectionKeeper extends Keeper {
  constructor(client, name, asked) {
    super(name);
    this.client = client;
    this.asked = asked;
  }

  async ask() {
    const { owner, within_ms: within } = this.asked;
    const leads = this.term?.isValid() === true;
    const wait = leads ? undefined : Math.floor(Math.min(NEWS_WAIT, within / 2));
    const patience = this.patience() + (wait ?? 0);
    const sent = reading();
    try {
      const asked = body({ owner, wait_ms: wait });
      const route = path("elections", this.name, "keep");
      return this.settle(sent, await this.client.request("POST", route, asked, patience));
    } catch (error) {
      if (!(error instanceof Conflict)) throw error;
      this.lose(error.message);
      if (error.code !== "not-found" || this.closed) return RETRY_AFTER;
      // The sidecar is a new one, or had not heard of us for too long.
      await this.client.request("POST", path("elections", this.name), this.asked);
      return 0;
    }
  }
}

/** Keeps a lock or a tick that is held already. */
class HoldKeeper extends Keeper {
  constructor(client, kind, name, owner) {
    super(name);
    this.client = client;
    this.kind = kind;
    this.owner = owner;
  }

  async ask() {
    const first = this.term;
    // Told lost; what was told lost is not held again.
    if (!first?.isValid()) return -1;
    const sent = reading();
    const route = path(this.kind, this.name, "keep");
    try {
      const asked = { owner: this.owner };
      const answer = await this.client.request("POST", route, asked, this.patience());
      const pause = this.settle(sent, answer);
      if (this.term === first) return pause;
      this.lose("not renewed in time");
      return -1;
    } catch (error) {
      if (!(error instanceof Conflict)) throw error;
      this.lose(error.message);
      return -1;
    }
  }
}

/** An election that this program takes part in. */
export class Election {
  #client;
  #asked;
  #keeper;

  constructor(client, name, settings) {
    const { within = 10_000, ttl, priority, version, metadata, requireBeat } = settings;
    this.name = name;
    this.#client = client;
    this.#asked = body({
      owner: drawOwner(),
      within_ms: within,
      ttl_ms: ttl,
      priority,
      version,
      metadata,
      require_beat_ms: requireBeat,
    });
  }

  async join() {
    await this.#client.request("POST", path("elections", this.name), this.#asked);
    this.#keeper = new ElectionKeeper(this.#client, this.name, this.#asked);
    this.#keeper.start();
  }

  /** The current term, or undefined while this program does not lead. */
  get term() {
    const term = this.#keeper?.term;
    return term?.isValid() ? term : undefined;
  }

  /** Whether this program leads now. No I/O. */
  isLeader() {
    return this.term !== undefined;
  }

  /** Waits until this program leads; undefined when it was closed. */
  async waitForTerm() {
    while (this.#keeper && !this.#keeper.closed) {
      if (this.term) return this.term;
      await this.#keeper.news();
    }
    return undefined;
  }

  /** Every term that this program gets, until it is closed. */
  async *terms() {
    for (;;) {
      const term = await this.waitForTerm();
      if (!term) return;
      yield term;
      if (term.isValid()) {
        await new Promise((resolve) => {
          term.signal.addEventListener("abort", resolve, { once: true });
        });
      }
    }
  }

  /** Ends the term, if this program has one. End the work before. Resolves when another may lead. */
  async resign() {
    const term = this.term;
    if (!term) return;
    this.#keeper.resigned = term.token;
    this.#keeper.lose("resigned");
    try {
      const route = path("resign", this.name);
      await this.#client.request("POST", route, { token: term.token }, NEWS_WAIT);
    } catch (error) {
      // It is over already.
      if (!(error instanceof Conflict)) throw error;
    }
  }

  /** Says that the work made progress, where `requireBeat` asks for that. */
  async beat() {
    await this.#client.request("POST", path("beat", this.name), { owner: this.#asked.owner });
  }

  /** Leaves the election. End the work before. */
  async close() {
    if (!this.#keeper || this.#keeper.closed) return;
    this.#keeper.close("closed");
    const route = path("elections", this.name, "", { owner: this.#asked.owner });
    try {
      await this.#client.request("DELETE", route, undefined, NEWS_WAIT);
    } catch (error) {
      // Left already, or left soon because nobody keeps it.
      if (!(error instanceof Conflict || error instanceof Unavailable)) throw error;
    }
  }
}

/** A lock that is held. */
export class Lock {
  #client;
  #owner;
  #keeper;

  constructor(client, name, owner, keeper) {
    this.name = name;
    this.term = keeper.term;
    this.#client = client;
    this.#owner = owner;
    this.#keeper = keeper;
  }

  /** Releases it. Throws `Lost` if it was lost before: another may have worked since. */
  async release() {
    if (this.#keeper.closed) return;
    this.#keeper.close("released");
    try {
      const route = path("locks", this.name, "", { owner: this.#owner });
      await this.#client.request("DELETE", route);
    } catch (error) {
      if (!(error instanceof Conflict)) throw error;
      throw new Lost(error.message, error.code, error.status);
    }
  }
}

/** A tick of a job, to run here where `begun` says so. */
export class Tick {
  #client;
  #owner;
  #keeper;

  constructor(client, name, owner, state, keeper) {
    this.name = name;
    this.state = state;
    this.term = keeper?.term;
    this.#client = client;
    this.#owner = owner;
    this.#keeper = keeper;
  }

  /** Whether this program is to do the work. */
  get begun() {
    return this.state === "begun";
  }

  /** Records the outcome: "ok", "failed" or "not-started". Throws `Lost` if it was lost before. */
  async finish(result = "ok", why = "") {
    if (!this.#keeper || this.#keeper.closed) return;
    const asked = { owner: this.#owner, result, why: why.slice(0, 1000) };
    try {
      await this.#client.request("POST", path("ticks", this.name, "finish"), asked, NEWS_WAIT);
      this.state = { ok: "done", failed: "failed" }[result] ?? "open";
    } catch (error) {
      if (!(error instanceof Conflict)) throw error;
      this.state = "unfinished";
      throw new Lost(error.message, error.code, error.status);
    } finally {
      this.#keeper.close("finished");
    }
  }
}
