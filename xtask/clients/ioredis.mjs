// What ioredis gets from a server, a line of JSON to a step; the same from every server.
//
//     node ioredis.mjs PORT    (with NODE_PATH, or from a folder that has node_modules)

import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";

const require = createRequire(path.join(process.cwd(), "package.json"));
const { Redis } = require("ioredis");
const port = Number(process.argv[2]);
// Longer than anything here takes on a busy machine.
const PATIENCE_SECONDS = 20;

const connect = (options = {}) => new Redis({ port, lazyConnect: false, ...options });

const plain = (value) => {
  if (value instanceof Error) return `${value.name}: ${value.message}`;
  if (Buffer.isBuffer(value)) return value.toString("latin1");
  if (Array.isArray(value)) return value.map(plain);
  return value;
};

const step = async (name, action) => {
  let outcome;
  try {
    outcome = await action();
  } catch (error) {
    outcome = error;
  }
  console.log(JSON.stringify([name, plain(outcome)]));
};

const strings = async (r) => {
  await step("set", () => r.set("s", "v", "EX", 100, "NX"));
  await step("get", () => r.get("s"));
  await step("buffer", () => r.set("b", Buffer.from([0, 255, 10])).then(() => r.getBuffer("b")));
  await step("mset", () => r.mset({ a: 1, c: "two" }).then(() => r.mget("a", "c", "nosuch")));
  await step("wrong type", () => r.lpush("s", "x"));
  await step("unknown", () => r.call("NOSUCH", "x"));
  await step("hash", () => r.hset("h", { f: 1, g: "x" }).then(() => r.hgetall("h")));
  await step("zset", () => r.zadd("z", 1, "a", "inf", "b").then(() => r.zrange("z", 0, -1, "WITHSCORES")));
  await step("set", () => r.sadd("t", 1, 2, 3).then(() => r.smembers("t")).then((all) => all.sort()));
};

const pipelines = async (r) => {
  await step("pipeline", () => r.pipeline().set("k", 1).incr("k").lpush("k", "x").get("k").exec());
  await step("multi", () => r.multi().set("k", 10).incr("k").hgetall("h").exec());
  await step("multi error", () => r.multi().set("k").exec());
  await step("watch", async () => {
    await r.watch("k");
    const other = connect();
    await other.set("k", 99);
    other.disconnect();
    return r.multi().incr("k").exec();
  });
  await step("many", async () => {
    const replies = await Promise.all(Array.from({ length: 5000 }, () => r.incr("counter")));
    return replies.reduce((sum, one) => sum + one, 0);
  });
};

const scripts = async (r) => {
  r.defineCommand("double", {
    numberOfKeys: 1,
    lua: "return {KEYS[1], ARGV[1] * 2, redis.call('GET', 'k')}",
  });
  await step("script", () => r.double("k", 21));
  await step("script again", () => r.script("FLUSH").then(() => r.double("k", 1)));
  await step("script in pipeline", () => r.pipeline().double("k", 2).double("k", 3).exec());
  await step("script error", () => r.eval("return redis.error_reply('MY error')", 0));
};

const streams = async (r) => {
  for (let number = 1; number <= 5; number += 1) {
    await r.xadd("st", `${number}-1`, "n", number);
  }
  await step("range", () => r.xrange("st", "-", "+", "COUNT", 2));
  await step("group", () => r.xgroup("CREATE", "st", "g", "0"));
  await step("read", () => r.xreadgroup("GROUP", "g", "ada", "COUNT", 3, "STREAMS", "st", ">"));
  await step("ack", () => r.xack("st", "g", "1-1"));
  await step("pending", () => r.xpending("st", "g"));
  await step("claim", () => r.xautoclaim("st", "g", "bob", 0, "0-0"));
};

const blocking = async (r) => {
  const later = async (...words) => {
    const other = connect();
    const blocked = async () => /blocked_clients:[1-9]/.test(await other.info("clients"));
    while (!(await blocked())) await new Promise((resolve) => setTimeout(resolve, 5));
    await other.call(...words);
    other.disconnect();
  };
  const both = async (name, words, wait) => {
    const pushed = later(...words);
    await step(name, wait);
    await pushed;
  };
  await both("blpop", ["RPUSH", "q", "job"], () => r.blpop("other", "q", PATIENCE_SECONDS));
  await both("blmove", ["RPUSH", "q", "job"], () => r.blmove("q", "w", "LEFT", "RIGHT", PATIENCE_SECONDS));
  await both("xread", ["XADD", "xs", "1-1", "f", "v"], () =>
    r.xread("BLOCK", PATIENCE_SECONDS * 1000, "STREAMS", "xs", "$"));
  await step("blpop in vain", () => r.blpop("nosuch", 0.05));
};

const pubsub = async (r) => {
  const listener = connect();
  const heard = [];
  const all = new Promise((resolve) => {
    const hear = (...words) => {
      heard.push(words.map(String));
      if (heard.length === 2) resolve();
    };
    listener.on("message", (...words) => hear("message", ...words));
    listener.on("pmessage", (...words) => hear("pmessage", ...words));
  });
  await step("subscribe", () => listener.subscribe("news"));
  await step("psubscribe", () => listener.psubscribe("new*"));
  await step("publish", () => r.publish("news", "hello"));
  await all;
  await step("heard", () => heard);
  await step("unsubscribe", () => listener.unsubscribe("news"));
  listener.disconnect();
};

const others = async (r) => {
  await step("scan", async () => {
    const keys = new Set();
    for await (const batch of r.scanStream({ match: "*", count: 3 })) {
      batch.forEach((key) => keys.add(key));
    }
    return [...keys].sort();
  });
  await step("auto pipelining", async () => {
    const together = connect({ enableAutoPipelining: true });
    const replies = await Promise.all([together.get("s"), together.incr("auto"), together.get("nosuch")]);
    together.disconnect();
    return replies;
  });
  await step("other database", async () => {
    const other = connect({ db: 3, keyPrefix: "app:" });
    await other.set("x", 1);
    const found = await other.keys("*");
    other.disconnect();
    return found;
  });
  await step("monitor", async () => {
    const source = connect();
    const monitor = await source.monitor();
    const seen = new Promise((resolve) => monitor.on("monitor", (_, words) => resolve(words)));
    await r.get("watched");
    const words = await seen;
    monitor.disconnect();
    source.disconnect();
    return words;
  });
  await step("flush", () => r.flushall());
};

const r = connect();
await r.flushall();
for (const part of [strings, pipelines, scripts, streams, blocking, pubsub, others]) {
  await part(r);
}
r.disconnect();
