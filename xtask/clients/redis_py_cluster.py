"""redis-py's cluster clients write until they are told to stop, and say what was acknowledged.

    python redis_py_cluster.py CLIENTS PORT PORT …    (of the nodes)

Says "ready" when all clients write. After SIGTERM it prints a line for each key, `key acknowledged
unknown`, and "done". A key that begins with "list" has the numbers from 0 on, any other is a counter.
"""

import signal
import sys
import threading
import time

from redis.cluster import ClusterNode, RedisCluster

KEYS_EACH = 10
# Between two writes of one client: the machine has servers to run as well.
PAUSE = 0.01

over = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: over.set())
# SIGTERM goes to the main thread; that one only waits.
nodes = [("127.0.0.1", int(port)) for port in sys.argv[2:]]


class Writer(threading.Thread):
    def __init__(self, number):
        super().__init__(daemon=True)
        kinds = ["counter", "list"]
        self.keys = [f"{kinds[key % 2]}:{number}:{key}" for key in range(KEYS_EACH)]
        self.acknowledged = dict.fromkeys(self.keys, 0)
        self.trouble = None

    def run(self):
        try:
            client = RedisCluster(startup_nodes=[ClusterNode(*node) for node in nodes])
            while not over.is_set():
                for key in self.keys:
                    self.write(client, key)
                    time.sleep(PAUSE)
        except Exception as error:
            self.trouble = f"{type(error).__name__}: {error}"

    def write(self, client, key):
        count = self.acknowledged[key]
        answer = client.rpush(key, count) if key.startswith("list") else client.incr(key)
        if answer != count + 1:
            raise ValueError(f"{key} answers {answer} after {count}")
        self.acknowledged[key] = answer


writers = [Writer(number) for number in range(int(sys.argv[1]))]
for writer in writers:
    writer.start()
while not all(writer.acknowledged[writer.keys[0]] or writer.trouble for writer in writers):
    time.sleep(0.01)
print("ready", flush=True)
while not over.wait(0.1):
    pass
for writer in writers:
    writer.join()
    if writer.trouble:
        print(writer.trouble)
    for key, acknowledged in writer.acknowledged.items():
        print(key, acknowledged, 0)
print("done", flush=True)
