// Words and numbers as people read them, and elements as programs make them.

/** How long, in the largest unit that keeps it readable. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const s = ms / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${pad(Math.floor(s % 60))} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${pad(Math.floor((s % 3600) / 60))} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** A measured time, with a fraction where it matters. */
export function fine(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms >= 100) return duration(ms);
  return `${ms.toFixed(ms < 10 ? 2 : 1)} ms`;
}

const pad = (n) => String(n).padStart(2, "0");

const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false,
});

export const timeOfDay = (iso) => clock.format(new Date(iso));

const REASONS = {
  "released": "released",
  "handed-over": "handed over",
  "work-stalled": "work stalled",
  "work-failed": "work failed",
  "lease-ended": "lease ended",
  "too-late": "granted too late",
  "expired": "expired",
  "vanished": "key deleted",
  "cleared": "cleared by an operator",
};

/** How a term ended. */
export const ending = (reason) => REASONS[reason] ?? reason ?? "";

/** Others' words without characters that cannot be seen or turn the direction of writing. */
export const plain = (text) =>
  text.replace(/(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu, "\uFFFD");

/** An element with properties, attributes and children. Text is never taken for markup. */
export function el(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(node.dataset, value);
    else node.setAttribute(name, value === true ? "" : plain(String(value)));
  }
  const there = children.filter((child) => child !== null && child !== undefined);
  node.append(...there.map((child) => typeof child === "string" ? plain(child) : child));
  return node;
}

/** Changes a text only if it differs, so that selections and readers are left alone. */
export function say(node, given) {
  const text = plain(given);
  if (node.textContent !== text) node.textContent = text;
}
