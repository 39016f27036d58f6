// ioredis's cluster clients write until they are told to stop, and say what was acknowledged.
//
//     node ioredis_cluster.mjs CLIENTS PORT PORT …    (of the nodes)
//
// Says "ready" when all clients write. After SIGTERM it prints a line for each key, `key acknowledged
// unknown`, and "done". A key that begins with "list" has the numbers from 0 on, any other is a
// counter.

import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";

const require = createRequire(path.join(process.cwd(), "package.json"));
const { Cluster } = require("ioredis");
const [clients, ...ports] = process.argv.slice(2).map(Number);
const KEYS_EACH = 10;
// Between two writes of one client: the machine has servers to run as well.
const PAUSE_MS = 10;

const state = { isOver: false };
process.on("SIGTERM", () => {
  state.isOver = true;
});
const rest = () => new Promise((resolve) => setTimeout(resolve, PAUSE_MS));

const start = (number) => {
  const client = new Cluster(ports.map((port) => ({ host: "127.0.0.1", port })));
  client.on("error", () => {});
  const keys = Array.from({ length: KEYS_EACH }, (_, key) =>
    [`${key % 2 ? "list" : "counter"}:${number}:${key}`, 0]);
  return { client, keys: new Map(keys), trouble: null };
};

const write = async ({ client, keys }, key) => {
  const count = keys.get(key);
  const answer = await (key.startsWith("list") ? client.rpush(key, count) : client.incr(key));
  if (answer !== count + 1) throw new Error(`${key} answers ${answer} after ${count}`);
  keys.set(key, answer);
};

const run = async (writer, begun) => {
  try {
    while (!state.isOver) {
      for (const key of writer.keys.keys()) {
        await write(writer, key);
        begun();
        await rest();
      }
    }
  } catch (error) {
    writer.trouble = String(error);
    begun();
  }
};

const writers = Array.from({ length: clients }, (_, number) => start(number));
const running = [];
await Promise.all(writers.map((writer) => new Promise((begun) => running.push(run(writer, begun)))));
console.log("ready");
await Promise.all(running);
for (const { client, keys, trouble } of writers) {
  if (trouble) console.log(trouble);
  for (const [key, acknowledged] of keys) console.log(key, acknowledged, 0);
  client.disconnect();
}
console.log("done");
