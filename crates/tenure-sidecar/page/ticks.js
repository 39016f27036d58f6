// Round times for an axis: full seconds, minutes, hours and days of this browser's clock.

const [S, M, H, D] = [1000, 60e3, 3600e3, 86400e3];
const STEPS = [S, 2 * S, 5 * S, 10 * S, 15 * S, 30 * S, M, 2 * M, 5 * M, 10 * M, 15 * M, 30 * M,
  H, 2 * H, 3 * H, 6 * H, 12 * H, D, 2 * D, 7 * D, 14 * D, 28 * D];
// Enough for any width; a limit for widths that make no sense.
const TICKS_MAX = 60;

const pad = (n) => String(n).padStart(2, "0");
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const offset = (at) => -new Date(at).getTimezoneOffset() * M;

/** The ticks from `since` to `until`, `apart(hasSeconds)` milliseconds or more from each other. */
export function ticks(since, until, apart) {
  const step = STEPS.find((one) => one >= apart(one < M)) ?? STEPS.at(-1);
  const local = offset(since);
  const found = [];
  for (let at = Math.ceil((since + local) / step) * step; found.length < TICKS_MAX; at += step) {
    // Where the clock changes within the picture, the hours after it are round as well.
    const moment = at - (step >= H ? offset(at - local) : local);
    if (moment > until) break;
    if (moment >= since) found.push({ at: moment, text: label(moment, step) });
  }
  return found;
}

function label(at, step) {
  const date = new Date(at);
  const [h, m, s] = [date.getHours(), date.getMinutes(), date.getSeconds()];
  if (step >= D || (h === 0 && m === 0 && s === 0)) return `${date.getDate()} ${MONTHS[date.getMonth()]}`;
  return step < M ? `${pad(h)}:${pad(m)}:${pad(s)}` : `${pad(h)}:${pad(m)}`;
}
