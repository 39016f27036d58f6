// What a program in TypeScript may write. It is compiled, not run.

import { Client, Lost, TenureError } from "../index.js";
import type { Election, Lock, Term, Tick } from "../index.js";

export async function use(): Promise<void> {
  const client = new Client("unix:/run/tenure.sock", { token: "t", ca: "pem" });
  const election: Election = await client.election("report", {
    within: 10_000,
    ttl: 5_000,
    priority: 1,
    version: "3",
    metadata: { zone: "a" },
    requireBeat: 1_000,
  });
  for await (const term of election.terms()) {
    const token: number = term.token;
    await fetch("http://resource", { signal: term.signal, headers: { token: String(token) } });
    const left: number = term.remaining();
    if (left > 0 && term.isValid()) term.check();
    await election.beat();
    await election.resign();
  }
  const waited: Term | undefined = await election.waitForTerm();
  const because: string | undefined = waited?.lostBecause;
  await election.close();

  const lock: Lock = await client.acquire("invoices", { wait: 1_000 });
  await lock.release();
  const sum: number = await client.withLock("invoices", {}, (term) => term.token + 1);

  const tick: Tick = await client.tick("backup", { every: 86_400_000, rerunCrashed: false });
  if (tick.begun) await tick.finish("failed", because ?? String(sum));
  const { state, result } = await client.once("backup", { named: "one" }, async () => "done");
  const words: [string, string | undefined] = [state, result];
  const seen = await client.lookAtTick("backup", { number: 1 });
  console.log(words, seen.state, await client.status(), await client.isLeader("report"));
}

export function why(error: unknown): string {
  if (error instanceof Lost) return error.message;
  return error instanceof TenureError ? `${error.code} ${error.status}` : String(error);
}

// What must not compile.
export async function misuse(client: Client): Promise<void> {
  // @ts-expect-error A length is a number of milliseconds.
  await client.election("report", { ttl: "5s" });
  // @ts-expect-error Terms are given by an election or a lock.
  new (await import("../index.js")).Term();
  // @ts-expect-error A token is told, and not set.
  (await client.acquire("invoices")).term.token = 1;
  // @ts-expect-error It is "ok", "failed" or "not-started".
  await (await client.tick("backup", { number: 1 })).finish("done");
}
