// What ioredis gets from sentinels while a primary is lost, a line of JSON to a step; the same from
// all sentinels.
//
//     node ioredis_sentinel.mjs PORT PORT PORT    (of the sentinels)

import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";

const require = createRequire(path.join(process.cwd(), "package.json"));
const { Redis } = require("ioredis");
const sentinels = process.argv.slice(2).map((port) => ({ host: "127.0.0.1", port: Number(port) }));
// Longer than anything here takes on a busy machine.
const PATIENCE_MS = 120_000;

const step = (name, outcome) => console.log(JSON.stringify([name, outcome]));

// What it resolves to once it is something.
const until = async (action) => {
  const deadline = Date.now() + PATIENCE_MS;
  while (Date.now() < deadline) {
    try {
      const found = await action();
      if (found) return found;
    } catch {
      // Nobody is there for now.
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return null;
};

const connect = (role) => {
  const client = new Redis({
    sentinels,
    name: "main",
    role,
    failoverDetector: true,
    commandTimeout: 5_000,
    sentinelRetryStrategy: () => 100,
    retryStrategy: () => 100,
  });
  client.on("error", () => {});
  return client;
};

const primary = connect("master");
const replica = connect("slave");
const where = () => `${primary.stream.remoteAddress}:${primary.stream.remotePort}`;

step("it is written to", await until(() => primary.set("before", "1")));
step("a replica is read from", await until(() => replica.get("before")));
step("the role of the replica", (await replica.role())[0]);
step("all replicas have it", await until(async () => (await primary.wait(2, 5_000)) === 2));

const old = where();
const doomed = new Redis({ host: "127.0.0.1", port: primary.stream.remotePort, retryStrategy: null });
doomed.on("error", () => {});
await doomed.shutdown("NOSAVE").catch(() => {});
step("it is written to again", await until(() => primary.set("after", "2")));
step("at another place", where() !== old);
step("what was confirmed is there", await until(() => primary.get("before")));
step("replicas follow", await until(() => replica.get("after")));
step("the role", (await primary.role())[0]);
primary.disconnect();
replica.disconnect();
doomed.disconnect();
