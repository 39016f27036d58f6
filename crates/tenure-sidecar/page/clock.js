// How old what the sidecar said is. The two clocks are never compared: a short question, asked from
// time to time, tells which reading of the sidecar's clock belongs to which of ours. By it, what was
// sent long ago and came late (a tab that slept, a network that stood still) is not taken for news.

import { probe } from "./wire.js";

const TRIES = 3;
const AGAIN_AFTER = 30e3;
const AGAIN_MIN = 1000;
// Younger than this is as good as new: no reason to ask again.
const LATE = 1500;

let anchor = null;
let asking = false;
let askedAt = null;

/** A reading of both our clocks: one stops while the machine sleeps, the other may be set. */
export const reading = () => ({ ticks: performance.now(), wall: Date.now() });

/** Milliseconds since a reading, by whichever clock says more. */
export const since = (then) => Math.max(0, performance.now() - then.ticks, Date.now() - then.wall);

/** Milliseconds, at the most, since the sidecar said what it said as of `asOf`; `receivedAt` counts where nothing better is known. */
export function ageOf(asOf, receivedAt) {
  if (anchor === null) return since(receivedAt);
  const age = Math.max(0, since(anchor.at) - (asOf - anchor.asOf));
  if (age > LATE || since(anchor.at) > AGAIN_AFTER) settle();
  return age;
}

/** Forgets what belongs to which: the sidecar may be another one. */
export function forget() {
  anchor = null;
  askedAt = null;
  settle();
}

/** Asks a few times and keeps the quickest answer, for it says most. */
async function settle() {
  if (asking || (askedAt !== null && since(askedAt) < AGAIN_MIN)) return;
  asking = true;
  askedAt = reading();
  try {
    let best = null;
    for (let i = 0; i < TRIES; i++) {
      const at = reading();
      const asOf = await probe();
      const took = since(at);
      if (asOf !== null && (best === null || took < best.took)) best = { at, asOf, took };
    }
    if (best !== null) anchor = best;
  } catch {
    // The stream says when the connection is gone.
  } finally {
    asking = false;
  }
}
