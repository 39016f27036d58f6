// What BullMQ makes of a server, a line of JSON to a step; the same on every server.
//
//     node bullmq.mjs PORT    (from a folder that has node_modules)

import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";

const require = createRequire(path.join(process.cwd(), "package.json"));
const { FlowProducer, Queue, QueueEvents, Worker } = require("bullmq");
const { Redis } = require("ioredis");
const port = Number(process.argv[2]);
const connection = { port, maxRetriesPerRequest: null };
// Longer than anything here takes on a busy machine.
const PATIENCE_MS = 60_000;

const tell = (name, value) => console.log(JSON.stringify([name, value]));

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const until = async (name, check) => {
  const deadline = Date.now() + PATIENCE_MS;
  while (!(await check())) {
    if (Date.now() > deadline) throw new Error(`${name}: it does not come`);
    await wait(10);
  }
};

// The keys of a queue with their types, which show what its scripts have left.
const keysOf = async (redis, name) => {
  const found = await redis.keys(`bull:${name}:*`);
  // This one comes and goes with time.
  const keys = found.filter((key) => !key.endsWith(":stalled-check")).sort();
  return Promise.all(keys.map(async (key) => [key, await redis.type(key)]));
};

const withQueue = async (name, part) => {
  const queue = new Queue(name, { connection });
  const workers = [];
  const work = (processor, options = {}) => {
    const worker = new Worker(name, processor, { connection, drainDelay: 1, ...options });
    worker.on("error", (error) => tell(`${name} error`, error.message));
    workers.push(worker);
    return worker;
  };
  try {
    await part({ name, queue, work });
  } catch (error) {
    tell(`${name} failed`, `${error.name}: ${error.message}`);
  }
  await Promise.all(workers.map((worker) => worker.close()));
  await queue.close();
};

const plain = (redis) => withQueue("plain", async ({ name, queue, work }) => {
  const events = new QueueEvents(name, { connection });
  await events.waitUntilReady();
  const heard = [];
  events.on("completed", ({ returnvalue }) => heard.push(["completed", returnvalue]));
  events.on("failed", ({ failedReason }) => heard.push(["failed", failedReason]));
  work(async (job) => {
    await job.updateProgress(50);
    await job.log("half");
    if (job.data.fails) throw new Error("on purpose");
    return job.data.number * 2;
  });
  const job = await queue.add("double", { number: 21 });
  tell("result", await job.waitUntilFinished(events, PATIENCE_MS));
  const bad = await queue.add("bad", { fails: true });
  tell("failure", await bad.waitUntilFinished(events, PATIENCE_MS).catch((error) => error.message));
  await until("events", () => heard.length === 2);
  tell("events", heard);
  const again = await queue.getJob(job.id);
  tell("job", [again.progress, again.returnvalue, again.attemptsMade, await again.getState()]);
  tell("logs", await queue.getJobLogs(job.id));
  tell("counts", await queue.getJobCounts());
  tell("same id", [(await queue.add("x", {}, { jobId: "one" })).id, (await queue.add("x", {}, { jobId: "one" })).id]);
  await until("the last", async () => (await queue.getCompletedCount()) === 2);
  const bulk = await queue.addBulk([{ name: "a", data: { number: 1 } }, { name: "b", data: { number: 2 } }]);
  tell("bulk", await Promise.all(bulk.map((one) => one.waitUntilFinished(events, PATIENCE_MS))));
  await until("all done", async () => (await queue.getCompletedCount()) === 4);
  tell("cleaned", (await queue.clean(0, 100, "completed")).length);
  await events.close();
  tell("keys", await keysOf(redis, name));
});

const delayed = () => withQueue("delayed", async ({ queue, work }) => {
  const order = [];
  await queue.add("late", {}, { delay: 3000 });
  await queue.add("soon", {}, { delay: 1500 });
  tell("delayed count", await queue.getDelayedCount());
  await queue.add("now", {});
  const moved = await queue.add("moved", {}, { delay: PATIENCE_MS });
  await moved.promote();
  work(async (job) => void order.push(job.name));
  await until("all of them", () => order.length === 4);
  tell("order", order);
});

const retried = () => withQueue("retried", async ({ queue, work }) => {
  const attempts = [];
  work(async (job) => {
    attempts.push(job.attemptsMade);
    if (job.attemptsMade < 3) throw new Error("not yet");
    return "at last";
  });
  const job = await queue.add("stubborn", {}, { attempts: 4, backoff: { type: "exponential", delay: 20 } });
  await until("the end", () => job.isCompleted());
  tell("attempts", attempts);
  const found = await queue.getJob(job.id);
  tell("stubborn", [found.returnvalue, found.attemptsMade, found.stacktrace.length]);
});

const repeated = () => withQueue("repeated", async ({ queue, work }) => {
  const runs = [];
  work(async (job) => void runs.push([job.name, job.data.number]));
  await queue.add("tick", { number: 7 }, { repeat: { every: 100, limit: 3 } });
  await until("three runs", () => runs.length >= 3);
  // A fourth would come within this time.
  await wait(500);
  tell("runs", runs);
  await queue.add("cron", {}, { repeat: { pattern: "0 0 1 1 *" } });
  const all = (await queue.getRepeatableJobs()).filter((job) => job.name === "cron");
  tell("repeatable", all.map((job) => [job.name, job.pattern]));
  tell("removed", await queue.removeRepeatableByKey(all[0].key));
  tell("left", (await queue.getRepeatableJobs()).filter((job) => job.name === "cron").length);
});

const limited = () => withQueue("limited", async ({ queue, work }) => {
  const order = [];
  const moments = [];
  await queue.addBulk([1, 2, 3, 4, 5].map((number) => ({ name: `job ${number}`, data: {} })));
  work(async (job) => {
    order.push(job.name);
    moments.push(Date.now());
  }, { limiter: { max: 2, duration: 500 } });
  await until("all of them", () => order.length === 5);
  tell("limited order", order);
  tell("held back", moments[4] - moments[0] >= 500);
});

const prioritised = () => withQueue("prioritised", async ({ queue, work }) => {
  const order = [];
  await queue.pause();
  tell("paused", await queue.isPaused());
  for (const [name, priority] of [["third", 30], ["first", 1], ["second", 2], ["also second", 2]]) {
    await queue.add(name, {}, { priority });
  }
  await queue.add("before all", {});
  await queue.add("last in", {}, { lifo: true });
  tell("counts", await queue.getJobCounts("prioritized", "paused", "wait"));
  const changed = await queue.add("changed", {}, { priority: 40 });
  await changed.changePriority({ priority: 20 });
  work(async (job) => void order.push(job.name));
  await queue.resume();
  await until("all of them", () => order.length === 7);
  tell("order", order);
});

const stalled = () => withQueue("stalled", async ({ queue, work }) => {
  // A worker that takes a job and is never heard of again.
  const lost = work(null, { lockDuration: 200, autorun: false });
  const job = await queue.add("lost", { number: 3 });
  const taken = await lost.getNextJob("a token");
  tell("taken", [taken.id === job.id, await job.getState()]);
  const seen = [];
  const done = [];
  const worker = work(async (one) => one.data.number + 1, { stalledInterval: 100, maxStalledCount: 2 });
  worker.on("stalled", (id) => seen.push(id === job.id));
  worker.on("completed", (one) => done.push(one.returnvalue));
  await until("the end", () => done.length === 1);
  tell("stalled", [seen.length > 0 && seen.every(Boolean), done]);
  tell("late", await taken.moveToCompleted("too late", "a token").catch((error) => error.message.split(" ").slice(0, 3)));
});

const flows = async (redis) => {
  await withQueue("children", async ({ work }) => {
    work(async (job) => job.data.number * 10);
    await withQueue("parents", async ({ name, queue, work: workParents }) => {
      const sums = [];
      workParents(async (job) => {
        const values = Object.values(await job.getChildrenValues()).sort((a, b) => a - b);
        sums.push(values);
        return values;
      });
      const flow = new FlowProducer({ connection });
      const child = (number) => ({ name: `child ${number}`, queueName: "children", data: { number } });
      const tree = await flow.add({
        name: "parent",
        queueName: name,
        children: [child(1), child(2), { ...child(3), children: [child(4)] }],
      });
      await until("the parent", () => tree.job.isCompleted());
      tell("children", sums);
      const found = await queue.getJob(tree.job.id);
      tell("parent", found.returnvalue);
      tell("processed", Object.values((await found.getDependencies()).processed).sort());
      await flow.close();
      tell("keys", (await keysOf(redis, name)).map(([, type]) => type).sort());
    });
  });
};

const emptied = (redis) => withQueue("emptied", async ({ name, queue }) => {
  await queue.addBulk([1, 2, 3].map((number) => ({ name: "x", data: { number } })));
  await queue.add("y", {}, { delay: PATIENCE_MS });
  tell("waiting", (await queue.getWaiting()).map((job) => job.data.number));
  await (await queue.getWaiting())[0].remove();
  await queue.drain(true);
  tell("drained", await queue.getJobCounts());
  await queue.obliterate();
  tell("nothing left", await keysOf(redis, name));
});

const redis = new Redis({ port });
await redis.flushall();
await plain(redis);
await delayed();
await retried();
await repeated();
await limited();
await prioritised();
await stalled();
await flows(redis);
await emptied(redis);
redis.disconnect();
