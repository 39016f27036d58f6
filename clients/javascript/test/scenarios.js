// What the client has to show against a real sidecar on a real store.
//
// The caller starts both and ends them: TENURE_SIDECAR is the sidecar's address,
// TENURE_SIDECAR_PID its process, TENURE_STORE_PORT the port of the store. The argument names the
// scenario.

import assert from "node:assert/strict";
import net from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, Conflict, Lost, NotAcquired, Refused, Unavailable } from "tenure-client";

const { TENURE_SIDECAR, TENURE_SIDECAR_PID, TENURE_SIDECAR_TOKEN, TENURE_STORE_PORT } = process.env;
const GENEROUS = 30_000;
const TTL = 5_000;
const client = () => new Client(TENURE_SIDECAR, { token: TENURE_SIDECAR_TOKEN });

function store(...words) {
  const lines = [`*${words.length}`, ...words.map((word) => `$${word.length}\r\n${word}`), ""];
  return new Promise((resolve, reject) => {
    const socket = net.connect(Number(TENURE_STORE_PORT), "127.0.0.1");
    socket.on("error", reject);
    socket.once("data", (data) => {
      socket.destroy();
      resolve(data.toString().trim());
    });
    socket.write(lines.join("\r\n"));
  });
}

async function leaseLeft(name) {
  return Number((await store("PTTL", `tenure:${name}`)).replace(":", ""));
}

async function waitUntil(what, condition) {
  const until = performance.now() + GENEROUS;
  while (!(await condition())) {
    assert(performance.now() < until, `waited in vain for ${what}`);
    await sleep(10);
  }
}

function signal(name) {
  process.kill(Number(TENURE_SIDECAR_PID), name);
}

async function lostWhen(stop) {
  const election = await client().election("report", { ttl: TTL });
  const term = await election.waitForTerm();
  const lock = await client().acquire("beside", { ttl: TTL });
  const left = new Promise((resolve) => {
    term.signal.addEventListener("abort", () => resolve(leaseLeft("report")));
  });
  signal(stop);
  await waitUntil("the timer", () => term.signal.aborted);
  assert((await left) > 0, "told after the end of the lease");
  assert(term.signal.reason instanceof Lost && !term.isValid() && !election.isLeader());
  assert.throws(() => term.check(), Lost);
  await waitUntil("the lock is lost", () => !lock.term.isValid());
  assert((await leaseLeft("beside")) > 0);
  if (stop === "SIGSTOP") {
    signal("SIGCONT");
    const again = await election.waitForTerm();
    assert(again !== term && again.isValid() && !term.isValid());
  }
  await election.close();
}

const scenarios = {
  async election() {
    const election = await client().election("report", { ttl: TTL, metadata: { zone: "a" } });
    for await (const term of election.terms()) {
      const first = term.remaining();
      await waitUntil("it is renewed", () => term.remaining() > first);
      assert.equal(term.token, (await client().request("GET", "/leader/report")).token);
      term.check();
      await election.close();
      assert(term.signal.aborted && term.lostBecause === "closed");
    }
    await waitUntil("the lease is released", async () => (await leaseLeft("report")) < 0);
  },
  stopped: () => lostWhen("SIGSTOP"),
  killed: () => lostWhen("SIGKILL"),
  // A program that does not turn its event loop learns of it by asking.
  async blocked() {
    const election = await client().election("report", { ttl: TTL });
    const term = await election.waitForTerm();
    const until = performance.now() + term.remaining() + 50;
    while (performance.now() < until);
    assert(!term.isValid() && term.signal.aborted);
    assert((await leaseLeft("report")) > 0);
    await election.close();
  },
  async locks() {
    const first = await client().acquire("invoices");
    await assert.rejects(client().acquire("invoices"), NotAcquired);
    const waiting = client().acquire("invoices", { wait: GENEROUS });
    await first.release();
    const second = await waiting;
    assert(second.term.token > first.term.token && !first.term.isValid());
    await second.release();
    const told = client().withLock("invoices", { wait: GENEROUS }, async (term) => {
      await store("DEL", "tenure:invoices");
      await waitUntil("it is lost", () => term.signal.aborted);
    });
    await assert.rejects(told, Lost);
  },
  async ticks() {
    const tick = await client().tick("backup", { named: "one" });
    assert(tick.begun && tick.term.isValid());
    assert.equal((await client().tick("backup", { named: "one" })).state, "running");
    await tick.finish();
    const work = () => assert.fail("it has run");
    assert.deepEqual(await client().once("backup", { named: "one" }, work), { state: "done" });
    const fails = client().once("backup", { named: "two", wait: GENEROUS }, () => {
      throw new Error("disk full");
    });
    await assert.rejects(fails, /disk full/);
    const seen = await client().lookAtTick("backup", { named: "two" });
    assert(seen.state === "failed" && seen.why.includes("disk full"), JSON.stringify(seen));
  },
  async restarted() {
    const election = await client().election("report", { ttl: TTL });
    const term = await election.waitForTerm();
    console.log("it leads");
    await waitUntil("it is lost", () => !term.isValid());
    const again = await election.waitForTerm();
    assert(again.token > term.token);
    await election.close();
  },
  async resigns() {
    const election = await client().election("report", { ttl: TTL });
    const term = await election.waitForTerm();
    await election.resign();
    assert(!term.isValid() && term.lostBecause === "resigned");
    const again = await election.waitForTerm();
    assert(again.token > term.token);
    const late = client().request("POST", "/resign/report", { token: term.token });
    await assert.rejects(late, Conflict);
    assert(again.isValid());
    await election.close();
  },
  async refused() {
    for (const wrong of ["nowhere", "ftp://x", "http://"]) {
      assert.throws(() => new Client(wrong), Refused);
    }
    await assert.rejects(client().election("report", { within: 100 }), Refused);
    await assert.rejects(new Client("http://127.0.0.1:1").status(), Unavailable);
  },
};

const storeAnswers = () =>
  client().lookAtTick("any", { named: "none" }).then(() => true, () => false);

await waitUntil("the store answers", storeAnswers);
await scenarios[process.argv[2]]();
console.log(process.argv[2], "holds");
