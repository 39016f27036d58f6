/** What went wrong. `code` is a stable word, the message says what to do. */
export class TenureError extends Error {
  readonly code: string;
  readonly status: number;
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

/** What may be acted on for a while. It is never valid again once it was lost. */
export class Term {
  private constructor();
  readonly name: string;
  /** Send it along with every write. */
  readonly token: number;
  /** Why it was lost, once it was. */
  readonly lostBecause: string | undefined;
  /** Aborted when it must not be acted on any more. */
  readonly signal: AbortSignal;
  /** Whether to go on. No I/O. */
  isValid(): boolean;
  /** How many milliseconds are left unless it is renewed. */
  remaining(): number;
  /** Throws `Lost` unless it is valid. */
  check(): void;
}

/** Lengths are milliseconds. */
export interface ElectionSettings {
  /** How long this program may be silent before the sidecar leaves the election; 10 s. */
  within?: number;
  ttl?: number;
  priority?: number;
  version?: string;
  metadata?: Record<string, string>;
  requireBeat?: number;
}

export interface LockSettings {
  /** How long to wait for the lock; not at all by default. */
  wait?: number;
  /** How long this program may be silent before it loses the lock; 10 s. */
  within?: number;
  ttl?: number;
}

/** Exactly one of them. */
export interface WhichTick {
  every?: number;
  number?: number;
  named?: string;
}

export interface TickSettings extends WhichTick, LockSettings {
  /** Whether a tick that was begun and not finished runs again; true by default. */
  rerunCrashed?: boolean;
}

export class Client {
  constructor(url?: string, options?: { token?: string; ca?: string | Uint8Array });
  request(method: string, route: string, content?: unknown, timeout?: number): Promise<any>;
  isLeader(name: string): Promise<boolean>;
  status(): Promise<any>;
  election(name: string, settings?: ElectionSettings): Promise<Election>;
  acquire(name: string, settings?: LockSettings): Promise<Lock>;
  withLock<T>(name: string, settings: LockSettings, work: (term: Term) => Promise<T> | T): Promise<T>;
  tick(name: string, settings: TickSettings): Promise<Tick>;
  lookAtTick(name: string, which: WhichTick): Promise<{ state: string; why?: string; by?: string }>;
  once<T>(
    name: string,
    settings: TickSettings,
    work: (term: Term) => Promise<T> | T,
  ): Promise<{ state: string; result?: T }>;
}

export class Election {
  private constructor();
  readonly name: string;
  readonly term: Term | undefined;
  isLeader(): boolean;
  waitForTerm(): Promise<Term | undefined>;
  terms(): AsyncGenerator<Term, void, void>;
  resign(): Promise<void>;
  beat(): Promise<void>;
  close(): Promise<void>;
}

export class Lock {
  private constructor();
  readonly name: string;
  readonly term: Term;
  release(): Promise<void>;
}

export class Tick {
  private constructor();
  readonly name: string;
  readonly state: string;
  readonly begun: boolean;
  readonly term: Term | undefined;
  finish(result?: "ok" | "failed" | "not-started", why?: string): Promise<void>;
}
