// The timeline: one lane per start of an instance, one bar per term, a link from each term to the
// next, and the gap in which nobody led. Its right end is now, and what lies beyond it is the lease
// that runs; or it shows a part of the past that was chosen.

import { ticks } from "./ticks.js";
import { duration, el, ending, naturally, say, startOf, svg, when } from "./words.js";

const LANE = 34;
const LANE_NARROW = 40;
const BAR = 18;
const HEAD = 26;
const FOOT = 24;
const GUTTER_MIN = 84;
const GUTTER_MAX = 200;
const NARROW = 520;
// More lanes than this say less than a lane per name.
const LANES_MAX = 10;
// After this many pixels of drift everything is redrawn.
const DRIFT_MAX = 30;
// Less is a press and no choice of a range.
const DRAG_MIN = 8;
const RANGE_MIN = 1000;
export const WINDOWS = [
  { label: "1 min", ms: 60e3 }, { label: "10 min", ms: 600e3 }, { label: "1 h", ms: 3600e3 },
  { label: "24 h", ms: 86400e3 }, { label: "7 d", ms: 7 * 86400e3 },
];

export class Timeline {
  /** `on.range()`: another part is shown; `on.earlier()`: it begins before the first known term. */
  constructor(name, on) {
    this.on = on;
    this.image = svg("svg", { class: "timeline", role: "img", "aria-label": `Terms of ${name}`, tabindex: 0, height: 0 });
    this.tip = el("div", { class: "tip", role: "status", hidden: true });
    this.choice = el("div", { class: "choice", hidden: true });
    this.node = el("div", { class: "timeline-box" }, this.image, this.choice, this.tip);
    this.terms = [];
    this.doubtMs = null;
    this.windowMs = WINDOWS[0].ms;
    /** A part of the past; null: up to now. */
    this.range = null;
    this.width = 0;
    this.stale = true;
    this.listen();
    new ResizeObserver(([entry]) => {
      this.width = Math.round(entry.contentRect.width);
      this.stale = true;
      this.frame();
    }).observe(this.image);
  }

  // ------------------------------------------------------------------ what to show

  /** Takes over what history says. `clock()` is the store's time now. */
  show({ terms, running, clock }) {
    this.terms = terms.map((term) => ({
      ...term, from: Date.parse(term.began_at), to: term.ended_at ? Date.parse(term.ended_at) : null,
    }));
    this.running = running;
    this.clock = clock;
    this.stale = true;
  }

  /** What is left of the running lease, and how long it is. */
  lease(remaining, length) {
    this.remaining = remaining;
    this.length = length ?? remaining ?? 0;
  }

  /** For how long nobody can tell who leads; null while that is known. */
  doubt(ms) {
    if ((ms === null) !== (this.doubtMs === null)) this.stale = true;
    this.doubtMs = ms;
  }

  /** Who takes part: each has a lane, whether it ever led or not. */
  people(members) {
    const present = members.map(({ id, instance }) => ({ id, instance }));
    if (JSON.stringify(present) === JSON.stringify(this.present)) return;
    this.present = present;
    this.stale = true;
  }

  /** So much, up to now. */
  zoom(ms) {
    this.windowMs = ms;
    this.choose(null);
  }

  choose(range) {
    this.range = range;
    this.stale = true;
    this.on.range();
    this.frame();
  }

  /** Moves by a share of what is shown; not beyond now. */
  pan(share) {
    if (!this.clock) return;
    const { since, until } = this.bounds(this.clock());
    const by = (until - since) * share;
    this.choose(until + by >= this.clock() ? null : { since: since + by, until: until + by });
  }

  /** Shows so many times as much, around the middle; up to now where it was up to now. */
  scaleBy(factor) {
    if (!this.clock) return;
    const { since, until } = this.bounds(this.clock());
    const length = Math.max(RANGE_MIN, (until - since) * factor);
    if (this.range === null) {
      this.windowMs = Math.min(length, WINDOWS.at(-1).ms * 4);
      return this.choose(null);
    }
    const middle = (since + until) / 2;
    this.choose({ since: middle - length / 2, until: Math.min(middle + length / 2, this.clock()) });
  }

  bounds(now) {
    return this.range ?? { since: now - this.windowMs, until: now };
  }

  // ------------------------------------------------------------------ drawing

  /** Called often; does as little as it can. */
  frame() {
    if (!this.clock || this.width < 50) return;
    const now = this.clock();
    const drift = this.range ? 0 : (now - this.builtAt) * this.scale;
    if (this.stale || drift > DRIFT_MAX) this.build(now);
    else this.moving.setAttribute("transform", `translate(${-drift} 0)`);
    if (this.live) {
      const { bar, term } = this.live;
      bar.setAttribute("width", Math.max(2, (now - term.from) * this.scale));
    }
    if (this.tail) this.tail.setAttribute("width", Math.max(0, (this.remaining ?? 0) * this.scale));
  }

  build(now) {
    this.stale = false;
    this.builtAt = now;
    const { since, until } = this.bounds(now);
    const shown = this.terms.filter((term) => term.from <= until && (term.to ?? now) >= since);
    this.layOut(shown, since, until);
    this.knownUntil = this.doubtMs === null ? now : now - this.doubtMs;
    this.moving = svg("g", {}, ...this.axis(since, until));
    this.live = null;
    this.tail = null;
    for (const term of shown) {
      const before = this.terms[this.terms.indexOf(term) - 1];
      if (before) this.moving.append(...this.link(before, term));
      this.moving.append(this.bar(term));
    }
    this.drawEnd();
    this.paint();
    if (this.terms.length > 0 && since < this.terms[0].from) this.on.earlier();
    this.frame();
  }

  /** Lanes, and where a moment is. */
  layOut(shown, since, until) {
    const here = [...shown, ...(this.present ?? [])];
    const ids = new Set(here.map((one) => one.id));
    const keyOf = ids.size <= LANES_MAX ? (one) => one.id : (one) => one.instance;
    const lanes = new Map(here.map((one) => [keyOf(one), one]));
    const names = [...lanes.values()].map((one) => one.instance);
    this.lanes = [...lanes.keys()].sort(naturally).map((key) => {
      const one = lanes.get(key);
      const isAmbiguous = key === one.id && names.filter((name) => name === one.instance).length > 1;
      return { key, text: isAmbiguous ? `${one.instance} ${startOf(one)}` : one.instance, id: one.id };
    });
    this.isNarrow = this.width < NARROW;
    const longest = Math.max(6, ...this.lanes.map((lane) => lane.text.length));
    this.gutter = this.isNarrow ? 0 : Math.min(GUTTER_MAX, Math.max(GUTTER_MIN, longest * 7.6 + 16), this.width * 0.3);
    const room = this.width - this.gutter;
    // Room for the lease that runs, but never more than an eighth.
    const ahead = this.range ? 0 : Math.min(room / 8, (this.length ?? 0) * room / this.windowMs + 14);
    this.plot = room - ahead;
    this.end = this.gutter + this.plot;
    this.since = since;
    this.scale = this.plot / (until - since);
    this.lane = this.isNarrow ? LANE_NARROW : LANE;
    this.height = HEAD + Math.max(1, this.lanes.length) * this.lane + FOOT;
    this.x = (time) => this.gutter + (time - since) * this.scale;
    this.y = (one) => this.middle(this.lanes.findIndex((lane) => lane.key === keyOf(one)));
  }

  bar(term) {
    const isLive = term === this.terms.at(-1) && this.running && this.doubtMs === null;
    const from = this.x(term.from);
    const bar = svg("rect", {
      class: isLive ? "bar live" : "bar", x: from, y: this.y(term) - BAR / 2,
      width: Math.max(2, this.x(term.to ?? this.knownUntil) - from), height: BAR, rx: 3,
      data: { token: term.token },
    });
    if (isLive) this.live = { bar, term };
    return bar;
  }

  /** The step from one term to the next: a gap if there was one, and how the first ended. */
  link(before, term) {
    if (before.to === null) return [];
    const [from, to] = [this.x(before.to), this.x(term.from)];
    const isDrawn = this.lanes.some((lane) => lane.key === before.id || lane.key === before.instance);
    const parts = isDrawn ? [svg("path", { class: "step", d: `M${from} ${this.y(before)} V${this.y(term)} H${to}` })] : [];
    if (to - from >= 3) parts.unshift(this.gap(from, to - from));
    // Words only where they cover nobody else's.
    const room = (this.x(term.to ?? this.builtAt) - from) / 6.2;
    const gap = duration(term.gap_ms);
    const whole = `${ending(before.reason)}, ${gap} gap`;
    const words = [whole, `${gap} gap`, gap].find((text) => text.length + 1 < room);
    if (words) parts.push(svg("text", { class: "label", x: from, y: HEAD - 9 }, words));
    return parts;
  }

  gap(x, width, kind = "gap") {
    return svg("rect", { class: kind, x, y: HEAD - 2, width: Math.max(0, width), height: this.height - HEAD - FOOT + 4 });
  }

  /** What comes after the last term: its lease, nobody, or what nobody can tell. */
  drawEnd() {
    const last = this.terms.at(-1);
    const clamped = (time) => Math.min(Math.max(this.x(time), this.gutter), this.end);
    if (this.doubtMs !== null) {
      const from = clamped(this.knownUntil);
      this.moving.append(this.gap(from, this.end - from + DRIFT_MAX, "unknown"));
    } else if (last && !this.running) {
      const from = clamped(last.to ?? this.builtAt);
      this.moving.append(this.gap(from, this.end - from + DRIFT_MAX));
    } else if (last && !this.range) {
      this.tail = svg("rect", { class: "tail", x: this.end, y: this.y(last) - BAR / 2, height: BAR, width: 0, rx: 3 });
    }
  }

  axis(since, until) {
    const apart = (hasSeconds) => (hasSeconds ? 92 : 68) / this.scale;
    // A word that is half cut off says nothing.
    const left = this.gutter + (this.range ? 0 : 4);
    const right = this.end - (this.range ? 20 : 50);
    const drawn = ticks(since, until + DRIFT_MAX / this.scale, apart);
    return drawn.flatMap(({ at, text }) => {
      const x = this.x(at);
      const line = svg("line", { class: "grid", x1: x, x2: x, y1: HEAD - 2, y2: this.height - FOOT + 2 });
      const isWhole = x - text.length * 3.4 >= left && x <= right;
      return isWhole ? [line, svg("text", { class: "tick", x, y: this.height - 6, "text-anchor": "middle" }, text)] : [line];
    });
  }

  paint() {
    const clip = `clip-${Math.random().toString(36).slice(2)}`;
    this.image.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.image.setAttribute("height", this.height);
    const now = this.range ? [] : [
      svg("line", { class: "now", x1: this.end, x2: this.end, y1: HEAD - 6, y2: this.height - FOOT + 2 }),
      svg("text", { class: "tick", x: this.end, y: this.height - 6, "text-anchor": "middle" }, "now")];
    this.image.replaceChildren(
      svg("defs", {},
        svg("clipPath", { id: clip }, svg("rect", { x: this.gutter, y: 0, width: this.plot, height: this.height })),
        svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
          svg("rect", { class: "hatch", width: 2, height: 6 }))),
      ...this.lanes.map((_, index) => svg("line", {
        class: "lane", x1: this.gutter, x2: this.width, y1: this.middle(index), y2: this.middle(index),
      })),
      svg("g", { "clip-path": `url(#${clip})` }, this.moving),
      ...(this.tail ? [this.tail] : []), ...now,
      ...this.lanes.map((lane, index) => this.laneName(lane, this.middle(index))));
  }

  middle(index) {
    return HEAD + (index + 1) * this.lane - LANE / 2;
  }

  /** Beside its lane, or above where there is no room. */
  laneName({ text, id }, y) {
    const fits = this.isNarrow ? Math.floor(this.width / 7) : Math.floor((this.gutter - 10) / 7.4);
    const shown = text.length > fits ? `${text.slice(0, fits - 1)}…` : text;
    const at = this.isNarrow ? y - BAR / 2 - 4 : y + 4;
    return svg("text", { class: "who", x: 0, y: at }, shown, svg("title", {}, id));
  }

  // ------------------------------------------------------------------ pointer and keys

  listen() {
    const { image } = this;
    image.addEventListener("pointerdown", (event) => this.press(event));
    image.addEventListener("pointermove", (event) => this.point(event));
    image.addEventListener("pointerup", (event) => this.release(event));
    image.addEventListener("pointercancel", () => this.leave());
    image.addEventListener("pointerleave", () => { if (this.pressedAt === undefined) this.leave(); });
    image.addEventListener("dblclick", () => this.scaleBy(4));
    image.addEventListener("keydown", (event) => {
      const act = { ArrowLeft: () => this.pan(-0.25), ArrowRight: () => this.pan(0.25), "+": () => this.scaleBy(0.5),
        "-": () => this.scaleBy(2), Escape: () => this.choose(null) }[event.key];
      if (!act || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      act();
    });
  }

  placeOf(event) {
    const box = this.image.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const drift = this.range ? 0 : (this.clock() - this.builtAt);
    return { x, y, at: this.since + drift + (x - this.gutter) / this.scale };
  }

  press(event) {
    if (!this.clock || event.button !== 0) return;
    const { x, at } = this.placeOf(event);
    if (x < this.gutter || x > this.end) return;
    this.pressedAt = { x, at };
    this.image.setPointerCapture(event.pointerId);
  }

  point(event) {
    if (!this.clock || this.scale === undefined) return;
    const place = this.placeOf(event);
    if (this.pressedAt !== undefined) {
      const [from, to] = [Math.min(this.pressedAt.x, place.x), Math.max(this.pressedAt.x, place.x)];
      this.choice.hidden = to - from < DRAG_MIN;
      this.choice.style.left = `${Math.max(from, this.gutter)}px`;
      this.choice.style.width = `${Math.min(to, this.end) - Math.max(from, this.gutter)}px`;
    }
    this.describe(place);
  }

  /** A press and a drag choose what to look at; it begins and ends where the pointer did. */
  release(event) {
    const pressed = this.pressedAt;
    this.pressedAt = undefined;
    this.choice.hidden = true;
    if (pressed === undefined || !this.clock) return;
    const place = this.placeOf(event);
    if (Math.abs(place.x - pressed.x) < DRAG_MIN) return;
    const [since, until] = [Math.min(pressed.at, place.at), Math.min(Math.max(pressed.at, place.at), this.clock())];
    this.tip.hidden = true;
    this.choose({ since, until: Math.max(until, since + RANGE_MIN) });
  }

  leave() {
    this.pressedAt = undefined;
    this.choice.hidden = true;
    this.tip.hidden = true;
  }

  /** Says what is under the pointer: a term, or who led at that moment. */
  describe({ x, y, at }) {
    this.tip.hidden = x < this.gutter || x > this.end;
    if (this.tip.hidden) return;
    const slack = 3 / this.scale;
    const near = this.terms.filter((term) => at >= term.from - slack && at <= (term.to ?? this.knownUntil) + slack);
    const term = near.sort((a, b) => Math.abs(this.y(a) - y) - Math.abs(this.y(b) - y))[0];
    say(this.tip, term ? describeTerm(term, this.doubtMs === null ? this.clock() : this.knownUntil) : `${when(at)}\n${this.describeNobody(at)}`);
    const box = this.tip.getBoundingClientRect();
    this.tip.style.left = `${Math.max(0, Math.min(x + 14, this.width - box.width))}px`;
    this.tip.style.top = `${y + 18}px`;
  }

  describeNobody(at) {
    const next = this.terms.find((term) => term.from > at);
    const before = this.terms.findLast((term) => term.from <= at);
    if (!before) return "before the first term that is known";
    if (this.doubtMs !== null && at > this.knownUntil) return "unknown who led";
    const length = next ? `for ${duration(next.gap_ms)}` : "since then";
    return `nobody led ${length}; before: ${ending(before.reason) || "end not known"}`;
  }
}

function describeTerm(term, now) {
  const lasted = duration((term.to ?? now) - term.from);
  const end = term.to === null ? `for ${lasted} so far` : `for ${lasted}, ${[ending(term.reason), term.detail].filter(Boolean).join(": ")}`;
  const times = term.to === null ? `since ${when(term.from)}` : `${when(term.from)} – ${when(term.to)}`;
  return `${term.id}\ntoken ${term.token}\n${times}\nled ${end}`;
}
