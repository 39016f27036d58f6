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

/** The same where it counts on by itself: whole seconds, so that it does not flicker. */
export function lasting(ms) {
  return ms < 10e3 ? `${Math.max(0, Math.floor(ms / 1000))} s` : duration(ms);
}

/** A measured time, with a fraction where it matters. */
export function fine(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms >= 100) return duration(ms);
  return `${ms.toFixed(ms < 10 ? 2 : 1)} ms`;
}

const pad = (n) => String(n).padStart(2, "0");
const dayOf = (date) => `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;

/** A moment on this browser's clock: the time, and the day unless that is today. */
export function when(moment) {
  const date = new Date(moment);
  const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map(pad).join(":");
  const day = dayOf(date);
  return day === dayOf(new Date()) ? time : `${day} ${time}`;
}

/** The same in UTC, to be compared with logs. */
export const utc = (moment) => new Date(moment).toISOString();

/** The zone of all times on the page. */
export const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

const order = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/** Names as people order them: job-2 before job-10. */
export const naturally = (a, b) => order.compare(a, b) || (a < b ? -1 : Number(a > b));

/** An id is a name and what tells one start of the process from the next. */
export function startOf(member) {
  const rest = member.id.slice(member.instance.length);
  return member.id.startsWith(member.instance) ? rest.replace(/^_/, "") : "";
}

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

/** The same for what is said when the pointer rests. */
export function hint(node, given) {
  const text = plain(given ?? "");
  if (node.title !== text) node.title = text;
}

/** Puts these children in this order, and touches nothing if they are there already. */
export function arrange(node, children) {
  const shown = node.children;
  const same = shown.length === children.length && children.every((child, index) => shown[index] === child);
  if (!same) node.replaceChildren(...children);
}
