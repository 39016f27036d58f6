"""What redis-py's Sentinel support gets while a primary is lost, a line of JSON to a step; the same
from all sentinels.

    python redis_py_sentinel.py PORT PORT PORT    (of the sentinels)
"""

import json
import sys
import time

import redis
from redis.sentinel import MasterNotFoundError, Sentinel, SlaveNotFoundError

NAME = "main"
# Longer than anything here takes on a busy machine.
PATIENCE = 120
ABSENT = (redis.ConnectionError, redis.TimeoutError, redis.ReadOnlyError,
          MasterNotFoundError, SlaveNotFoundError)


def step(name, outcome):
    print(json.dumps([name, outcome]), flush=True)


def until(action):
    """What it returns once it is something."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            found = action()
            if found:
                return found
        except ABSENT:
            pass
        time.sleep(0.05)
    return None


hosts = [("127.0.0.1", int(port)) for port in sys.argv[1:]]
sentinel = Sentinel(hosts, socket_timeout=5, decode_responses=True)
primary = sentinel.master_for(NAME, socket_timeout=5)
replica = sentinel.slave_for(NAME, socket_timeout=5)

old = until(lambda: sentinel.discover_master(NAME))
step("a primary is found", old is not None)
step("replicas are found", until(lambda: len(sentinel.discover_slaves(NAME)) == 2))
step("it is written to", until(lambda: primary.set("before", "1")))
step("a replica is read from", until(lambda: replica.get("before")))
step("all replicas have it", until(lambda: primary.execute_command("WAIT", 2, 5000) == 2))
state = sentinel.sentinels[0].sentinel_master(NAME)
step("its state", [state["is_master"], state["is_sdown"], state["is_odown"],
                   state["num-slaves"], state["num-other-sentinels"], state["quorum"]])

redis.Redis(*old, socket_timeout=5).shutdown(nosave=True)
step("it is written to again", until(lambda: primary.set("after", "2")))
step("another one is named", sentinel.discover_master(NAME) != old)
step("what was confirmed is there", until(lambda: primary.get("before")))
step("replicas follow", until(lambda: replica.get("after")))
step("the role", primary.role()[0])
try:
    sentinel.discover_master("nobody")
except MasterNotFoundError as error:
    step("an unknown name", type(error).__name__)
