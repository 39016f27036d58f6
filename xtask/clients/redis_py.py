"""What redis-py gets from a server, a line of JSON to a step; the same from every server.

    python redis_py.py PORT
"""

import json
import sys
import threading
import time

import redis

PORT = int(sys.argv[1])
# Longer than anything here takes on a busy machine.
PATIENCE = 20


def client(protocol, **options):
    return redis.Redis(port=PORT, decode_responses=True, protocol=protocol,
                       socket_timeout=PATIENCE, **options)


def plain(value):
    """The same text for the same value, whatever order a server keeps it in."""
    if isinstance(value, dict):
        return {str(plain(key)): plain(inner) for key, inner in sorted(value.items(), key=str)}
    if isinstance(value, (set, frozenset)):
        return sorted(plain(inner) for inner in value)
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Exception):
        return f"{type(value).__name__}: {value}"
    return value


def step(name, action):
    try:
        outcome = action()
    except redis.RedisError as error:
        outcome = error
    print(json.dumps([name, plain(outcome)]), flush=True)


def strings(r):
    step("set", lambda: r.set("s", "v", ex=100, nx=True))
    step("set get", lambda: r.set("s", "w", get=True, keepttl=True))
    step("ttl", lambda: 0 < r.ttl("s") <= 100)
    step("mset", lambda: (r.mset({"a": 1, "b": 2.5}), r.mget("a", "b", "nosuch")))
    step("incr", lambda: (r.incr("a"), r.incrbyfloat("b", 0.25), r.decr("a", 5)))
    step("range", lambda: (r.setrange("s", 3, "xyz"), r.getrange("s", 0, -1), r.strlen("s")))
    step("bits", lambda: (r.setbit("bits", 7, 1), r.bitcount("bits"), r.bitpos("bits", 1)))
    step("bitfield", lambda: r.bitfield("bits").set("u8", 8, 255).incrby("i5", 16, 1).execute())
    step("wrong type", lambda: r.lpush("s", "x"))
    step("unknown", lambda: r.execute_command("NOSUCH", "x"))
    step("lcs", lambda: (r.set("x", "ohmytext"), r.set("y", "mynewtext"), r.lcs("x", "y")))


def collections(r):
    step("list", lambda: (r.rpush("l", *"abcd"), r.lrange("l", 0, -1), r.lpos("l", "c"),
                          r.lmove("l", "m", "LEFT", "RIGHT"), r.lmpop(2, "l", "m", direction="LEFT")))
    step("hash", lambda: (r.hset("h", mapping={"f": 1, "g": "x"}), r.hgetall("h"),
                          r.hincrby("h", "f", 4), r.hmget("h", "f", "nosuch"), r.hscan("h")))
    step("set", lambda: (r.sadd("t", 1, 2, 3), r.smembers("t"), r.smismember("t", [1, 9]),
                         r.sintercard(1, ["t"])))
    step("zset", lambda: (r.zadd("z", {"a": 1, "b": 2.5, "c": float("inf")}),
                          r.zrange("z", 0, -1, withscores=True),
                          r.zrangebyscore("z", "(1", "+inf", withscores=True),
                          r.zscore("z", "b"), r.zmscore("z", ["a", "nosuch"]),
                          r.zrank("z", "b"), r.zpopmin("z"), r.zrandmember("z", 0)))
    step("zset algebra", lambda: (r.zadd("zz", {"b": 1}), r.zunion(["z", "zz"], withscores=True),
                                  r.zinter({"z": 2, "zz": 3}, withscores=True)))
    step("geo", lambda: (r.geoadd("g", (13.361389, 38.115556, "p", 15.087269, 37.502669, "c")),
                         r.geodist("g", "p", "c", "km"), r.geohash("g", "p"),
                         r.geosearch("g", longitude=15, latitude=37, radius=200, unit="km",
                                     sort="ASC", withdist=True)))
    step("hyperloglog", lambda: (r.pfadd("p", *range(100)), r.pfcount("p")))
    step("sort", lambda: (r.rpush("n", 3, 1, 2), r.sort("n", desc=True), r.sort("n", by="nosort")))
    step("scan", lambda: sorted(r.scan_iter("*", count=3)))
    step("copy", lambda: (r.copy("h", "h2"), r.rename("h2", "h3"), r.type("h3"), r.exists("h3")))
    step("dump", lambda: r.object("encoding", "h"))


def pipelines(r):
    def together():
        with r.pipeline(transaction=False) as pipe:
            pipe.set("k", 1).incr("k").lpush("k", "x").get("k")
            return pipe.execute(raise_on_error=False)

    def transaction():
        with r.pipeline() as pipe:
            pipe.set("k", 10).incr("k").hgetall("h")
            return pipe.execute()

    def watched():
        tries = []

        def change(pipe):
            before = pipe.get("k")
            if not tries:
                r.set("k", 99)
            tries.append(before)
            pipe.multi()
            pipe.set("k", int(before) + 1)

        outcome = r.transaction(change, "k")
        return outcome, tries, r.get("k")

    step("pipeline", together)
    step("transaction", transaction)
    step("watch", watched)
    step("large pipeline", lambda: sum(pipeline_of(r, 5000)))


def pipeline_of(r, count):
    with r.pipeline(transaction=False) as pipe:
        for _ in range(count):
            pipe.incr("counter")
        return pipe.execute()


def scripts(r):
    double = r.register_script("return {KEYS[1], ARGV[1] * 2, redis.call('GET', 'k')}")
    step("script", lambda: double(keys=["k"], args=[21]))
    step("script again", lambda: (r.script_flush(), double(keys=["k"], args=[1])))
    step("script error", lambda: r.eval("return redis.error_reply('MY error')", 0))
    step("script exists", lambda: r.script_exists(double.sha, "0" * 40))
    library = "#!lua name=lib\nredis.register_function('f', function(k, a) return a[1] .. k[1] end)"
    step("function", lambda: (r.function_load(library, replace=True), r.fcall("f", 1, "key", "arg")))
    step("lock", lambda: locked(r))


def locked(r):
    with r.lock("lock", timeout=30) as lock:
        other = r.lock("lock", timeout=30, blocking=False)
        return lock.owned(), other.acquire(), lock.extend(10)


def streams(r):
    for number in range(1, 6):
        r.xadd("st", {"n": number}, id=f"{number}-1")
    step("stream", lambda: (r.xrange("st", count=2), r.xrevrange("st", count=1), r.xlen("st")))
    step("group", lambda: (r.xgroup_create("st", "g", id="0"),
                           r.xreadgroup("g", "ada", {"st": ">"}, count=3),
                           r.xack("st", "g", "1-1"), r.xpending("st", "g"),
                           [entry["message_id"] for entry in
                            r.xpending_range("st", "g", "-", "+", 10)]))
    step("claim", lambda: (r.xautoclaim("st", "g", "bob", 0, "0-0"),
                           r.xclaim("st", "g", "eve", 0, ["2-1"], justid=True)))
    step("stream info", lambda: (r.xinfo_stream("st")["length"], r.xinfo_groups("st")[0]["name"],
                                 len(r.xinfo_consumers("st", "g"))))
    step("read", lambda: (r.xread({"st": "4-1"}), r.xtrim("st", maxlen=2, approximate=False)))


def blocking(r, protocol):
    def later(*words):
        other = client(protocol)
        def act():
            # Until the other side waits.
            deadline = time.monotonic() + PATIENCE
            while r2.info("clients")["blocked_clients"] == 0 and time.monotonic() < deadline:
                time.sleep(0.005)
            other.execute_command(*words)
        r2 = client(protocol)
        thread = threading.Thread(target=act)
        thread.start()
        return thread

    def case(name, words, wait):
        thread = later(*words)
        step(name, wait)
        thread.join()

    case("blpop", ("RPUSH", "q", "job"), lambda: r.blpop(["other", "q"], timeout=PATIENCE))
    case("blmove", ("RPUSH", "q", "job"), lambda: r.blmove("q", "w", PATIENCE))
    case("bzpopmin", ("ZADD", "bz", 1.5, "m"), lambda: r.bzpopmin("bz", timeout=PATIENCE))
    case("xread block", ("XADD", "xs", "1-1", "f", "v"),
         lambda: r.xread({"xs": "$"}, block=PATIENCE * 1000))
    step("blpop in vain", lambda: r.blpop("nosuch", timeout=0.05))


def pubsub(r, protocol):
    listener = client(protocol).pubsub(ignore_subscribe_messages=False)
    listener.subscribe("news")
    listener.psubscribe("new*")

    def next_message():
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            message = listener.get_message(timeout=1)
            if message:
                return message
        return "nothing came"

    step("subscribed", lambda: (next_message(), next_message()))
    step("published", lambda: r.publish("news", "hello"))
    step("heard", lambda: (next_message(), next_message()))
    step("channels", lambda: (r.pubsub_channels(), r.pubsub_numsub("news"), r.pubsub_numpat()))
    listener.unsubscribe("news")
    step("unsubscribed", next_message)
    listener.close()


def administration(r):
    step("info", lambda: sorted(set(r.info()) & {"redis_version", "used_memory", "role",
                                                  "connected_clients", "total_commands_processed"}))
    step("version", lambda: r.info("server")["redis_version"])
    step("config", lambda: (r.config_set("maxmemory-policy", "allkeys-lru"),
                            r.config_get("maxmemory-policy")))
    step("client", lambda: (r.client_setname("me"), r.client_getname(),
                            [c["name"] for c in r.client_list() if c["name"]]))
    step("acl", lambda: (r.acl_setuser("ada", enabled=True, passwords=["+pw"], keys=["a*"],
                                       commands=["+get"]),
                         sorted(r.acl_users()), r.acl_whoami(),
                         client(2, username="ada", password="pw").get("a")))
    step("acl denied", lambda: client(2, username="ada", password="pw").set("a", 1))
    step("acl wrong", lambda: client(2, username="ada", password="wrong").ping())
    step("command", lambda: (r.command_count() > 200, r.command_getkeys("SET", "k", "v")))
    step("memory", lambda: r.memory_usage("k") > 0)
    step("slowlog", lambda: isinstance(r.slowlog_get(), list))
    step("flush", lambda: (r.flushall(), r.dbsize()))


def main():
    for protocol in (2, 3):
        r = client(protocol)
        r.flushall()
        print(json.dumps(["protocol", protocol]))
        strings(r)
        collections(r)
        pipelines(r)
        scripts(r)
        streams(r)
        blocking(r, protocol)
        pubsub(r, protocol)
        administration(r)


main()
