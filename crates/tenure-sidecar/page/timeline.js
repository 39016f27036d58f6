// The timeline: one lane per instance, one bar per term, a link from each term to the next, and
// the gap in which nobody led. The right end is now; what lies beyond it is the lease that runs.

import { duration, ending, svg } from "./words.js";

const LANE = 34;
const BAR = 18;
const HEAD = 26;
const FOOT = 22;
const GUTTER_MIN = 84;
const GUTTER_MAX = 170;
// After this many pixels of drift everything is redrawn.
const DRIFT_MAX = 30;
export const WINDOWS = [
  { label: "1 min", ms: 60e3 }, { label: "10 min", ms: 600e3 },
  { label: "1 h", ms: 3600e3 }, { label: "24 h", ms: 86400e3 },
];

export class Timeline {
  constructor(name) {
    this.node = svg("svg", { class: "timeline", role: "img", "aria-label": `Terms of ${name}` });
    this.terms = [];
    this.doubtMs = null;
    this.lanes = [];
    this.windowMs = WINDOWS[0].ms;
    this.width = 0;
    this.stale = true;
    new ResizeObserver(([entry]) => {
      this.width = Math.round(entry.contentRect.width);
      this.stale = true;
      this.frame();
    }).observe(this.node);
  }

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
  people(names) {
    if (names.join() === this.present?.join()) return;
    this.present = names;
    this.stale = true;
  }

  zoom(ms) {
    this.windowMs = ms;
    this.stale = true;
  }

  /** Called often; does as little as it can. */
  frame() {
    if (!this.clock || this.width < 50) return;
    const now = this.clock();
    const drift = (now - this.builtAt) * this.scale;
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
    const since = now - this.windowMs;
    const shown = this.terms.filter((term) => (term.to ?? now) >= since);
    const last = this.terms.at(-1);
    this.knownUntil = this.doubtMs === null ? now : now - this.doubtMs;
    this.lanes = [...new Set([...shown.map((term) => term.instance), ...(this.present ?? [])])].sort();
    const longest = Math.max(6, ...this.lanes.map((name) => name.length));
    const gutter = Math.min(GUTTER_MAX, Math.max(GUTTER_MIN, longest * 7.6 + 16), this.width * 0.3);
    // Room for the lease that runs, but never more than an eighth.
    const ahead = Math.min((this.width - gutter) / 8, (this.length ?? 0) * (this.width - gutter) / this.windowMs + 14);
    const plot = this.width - gutter - ahead;
    this.scale = plot / this.windowMs;
    this.height = HEAD + Math.max(1, this.lanes.length) * LANE + FOOT;
    const x = (time) => gutter + (time - since) * this.scale;
    const lane = (term) => HEAD + this.lanes.indexOf(term.instance) * LANE;

    const clip = `clip-${Math.random().toString(36).slice(2)}`;
    this.moving = svg("g");
    this.live = null;
    shown.forEach((term, index) => {
      const before = index > 0 ? shown[index - 1] : null;
      if (before) this.moving.append(...this.link(before, term, x, lane));
      this.moving.append(this.bar(term, x, lane, this.knownUntil, term === last && this.running && this.doubtMs === null));
    });
    const end = gutter + plot;
    this.tail = null;
    const running = this.running && this.doubtMs === null && last ? last : null;
    if (running) {
      this.tail = svg("rect", {
        class: "tail", x: end, y: lane(running) + (LANE - BAR) / 2, height: BAR, width: 0, rx: 3,
      });
    } else if (this.doubtMs !== null) {
      const from = Math.min(Math.max(x(this.knownUntil), gutter), end);
      this.moving.append(svg("rect", {
        class: "unknown", x: from, y: HEAD - 2, width: Math.max(0, end - from) + DRIFT_MAX,
        height: this.height - HEAD - FOOT + 4,
      }, svg("title", {}, "unknown who led")));
    } else if (last && shown.length > 0) {
      this.moving.append(this.openGap(last, x, end, now));
    }
    this.node.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.node.setAttribute("height", this.height);
    this.node.replaceChildren(
      svg("defs", {},
        svg("clipPath", { id: clip }, svg("rect", { x: gutter, y: 0, width: plot, height: this.height })),
        svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
          svg("rect", { class: "hatch", width: 2, height: 6 }))),
      ...this.axis(gutter, plot),
      ...this.lanes.map((name, index) => this.laneLine(name, index, gutter)),
      svg("g", { "clip-path": `url(#${clip})` }, this.moving),
      ...(this.tail ? [this.tail] : []),
      svg("line", { class: "now", x1: end, x2: end, y1: HEAD - 6, y2: this.height - FOOT + 2 }),
    );
    this.frame();
  }

  bar(term, x, lane, now, isLive) {
    const from = x(term.from);
    const bar = svg("rect", {
      class: isLive ? "bar live" : "bar", x: from, y: lane(term) + (LANE - BAR) / 2,
      width: Math.max(2, x(term.to ?? now) - from), height: BAR, rx: 3,
      data: { token: term.token },
    }, svg("title", {}, describe(term, now)));
    if (isLive) this.live = { bar, term };
    return bar;
  }

  /** The step from one term to the next: a gap if there was one, and how the first ended. */
  link(before, term, x, lane) {
    if (before.to === null) return [];
    const [from, to] = [x(before.to), x(term.from)];
    const [y1, y2] = [lane(before) + LANE / 2, lane(term) + LANE / 2];
    const parts = [svg("path", { class: "step", d: `M${from} ${y1} V${y2} H${to}` })];
    if (to - from >= 3) {
      parts.unshift(svg("rect", {
        class: "gap", x: from, y: HEAD - 2, width: to - from, height: this.height - HEAD - FOOT + 4,
      }, svg("title", {}, `nobody led for ${duration(term.gap_ms)}: ${ending(before.reason)}`)));
    }
    // Words only where they cover nobody else's.
    const room = (x(term.to ?? this.builtAt) - from) / 6.2;
    const gap = duration(term.gap_ms);
    const whole = `${ending(before.reason)}, ${gap} gap`;
    const words = [whole, `${gap} gap`, gap].find((text) => text.length + 1 < room);
    if (words) parts.push(svg("text", { class: "label", x: from, y: HEAD - 9 }, words));
    return parts;
  }

  /** Nobody leads since the last term ended, or since its leader was last believed in. */
  openGap(last, x, end, now) {
    const from = Math.min(x(last.to ?? now), end);
    return svg("rect", {
      class: "gap", x: from, y: HEAD - 2, width: Math.max(0, end - from) + DRIFT_MAX,
      height: this.height - HEAD - FOOT + 4,
    });
  }

  laneLine(name, index, gutter) {
    const y = HEAD + index * LANE + LANE / 2;
    const fits = Math.floor((gutter - 10) / 7.4);
    const shown = name.length > fits ? `${name.slice(0, fits - 1)}…` : name;
    return svg("g", {},
      svg("line", { class: "lane", x1: gutter, x2: this.width, y1: y, y2: y }),
      svg("text", { class: "who", x: 0, y: y + 4 }, shown, svg("title", {}, name)));
  }

  axis(gutter, plot) {
    const steps = this.width < 520 ? 3 : 6;
    const ticks = [];
    for (let i = 0; i <= steps; i++) {
      const ago = this.windowMs * (1 - i / steps);
      const at = gutter + plot * i / steps;
      const text = i === steps ? "now" : `−${short(ago)}`;
      ticks.push(svg("text", {
        class: "tick", x: at, y: this.height - 4,
        "text-anchor": i === 0 ? "start" : "middle",
      }, text));
      if (i < steps) {
        ticks.push(svg("line", { class: "grid", x1: at, x2: at, y1: HEAD - 2, y2: this.height - FOOT + 2 }));
      }
    }
    return ticks;
  }
}

function short(ms) {
  const s = Math.round(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${+(s / 60).toFixed(1)} min`;
  return `${+(s / 3600).toFixed(1)} h`;
}

function describe(term, now) {
  const lasted = duration((term.to ?? now) - term.from);
  const end = term.to === null ? `for ${lasted} so far` : `for ${lasted}, ${ending(term.reason)}`;
  return `${term.id}\ntoken ${term.token}\nled ${end}`;
}
