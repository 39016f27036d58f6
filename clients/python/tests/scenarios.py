"""What the client has to show against a real sidecar on a real store.

The caller starts both and ends them: TENURE_SIDECAR is the sidecar's address, TENURE_SIDECAR_PID
its process, TENURE_STORE_PORT the port of the store. The argument names the scenario.
"""

import asyncio
import os
import signal
import socket
import sys
import threading
import time

import tenure_client
from tenure_client import Client, Lost, NotAcquired, Refused, Unavailable, aio

URL = os.environ["TENURE_SIDECAR"]
PID = int(os.environ["TENURE_SIDECAR_PID"])
PORT = int(os.environ["TENURE_STORE_PORT"])
GENEROUS = 30.0
TTL = 5.0


def store(*words):
    """What the store answers to a command."""
    with socket.create_connection(("127.0.0.1", PORT)) as connection:
        lines = [f"*{len(words)}"] + [f"${len(word)}\r\n{word}" for word in words]
        connection.sendall(("\r\n".join(lines) + "\r\n").encode())
        return connection.recv(4096).decode().strip()


def lease_left(name):
    """How many milliseconds are left of the lease, as the store counts them."""
    return int(store("PTTL", f"tenure:{name}").lstrip(":"))


def wait_until(what, condition):
    until = time.monotonic() + GENEROUS
    while not condition():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.01)


def election():
    with Client(URL).election("report", ttl=TTL, metadata={"zone": "a"}) as joined:
        term = joined.wait_for_term(GENEROUS)
        assert term is not None and term.is_valid() and joined.is_leader()
        first = term.remaining()
        wait_until("it is renewed", lambda: term.remaining() > first)
        assert term.token == Client(URL).request("GET", "/leader/report")["token"]
        term.check()
    assert not term.is_valid() and term.lost_because == "closed"
    wait_until("the lease is released", lambda: lease_left("report") < 0)


def lost_when(stop):
    """The term is told lost by timer and by check, before the lease ends, whatever the sidecar
    does."""
    joined = Client(URL).election("report", ttl=TTL).join()
    term = joined.wait_for_term(GENEROUS)
    told = threading.Event()
    left = []

    def lost(_):
        left.append(lease_left("report"))
        told.set()

    term.on_lost(lost)
    held = Client(URL).lock("beside", ttl=TTL).acquire()
    assert held.is_valid()
    os.kill(PID, stop)
    assert told.wait(GENEROUS), "the timer"
    assert not term.is_valid() and not joined.is_leader()
    assert left[0] > 0, f"told after the end of the lease: {left}"
    wait_until("the lock is lost", lambda: not held.is_valid())
    assert lease_left("beside") > 0
    try:
        term.check()
    except Lost:
        pass
    else:
        raise AssertionError("it may still be acted on")
    if stop == signal.SIGSTOP:
        os.kill(PID, signal.SIGCONT)
        again = joined.wait_for_term(GENEROUS)
        assert again is not None and again is not term and not term.is_valid()
        joined.close()


def stopped():
    lost_when(signal.SIGSTOP)


def killed():
    lost_when(signal.SIGKILL)


def locks():
    client = Client(URL)
    with client.lock("invoices") as term:
        try:
            client.lock("invoices").acquire()
        except NotAcquired as error:
            assert error.code == "held", error.code
        else:
            raise AssertionError("held twice")
        waited = []
        waiting = threading.Thread(target=lambda: waited.append(later.acquire()))
        later = client.lock("invoices", wait=GENEROUS)
        waiting.start()
    waiting.join()
    assert waited[0].token > term.token
    later.release()

    @client.leader_only("invoices", wait=GENEROUS)
    def work(row, term):
        assert term.is_valid()
        return row + 1

    assert work(1) == 2
    lock = client.lock("invoices", wait=GENEROUS)
    try:
        with lock as term:
            store("DEL", "tenure:invoices")
            wait_until("it is lost", lambda: not term.is_valid())
    except Lost:
        pass
    else:
        raise AssertionError("the loss was not told")


def ticks():
    client = Client(URL)
    with client.tick("backup", named="one") as tick:
        assert tick.begun and tick.term.is_valid()
        other = client.tick("backup", named="one")
        assert not other.begin() and other.state == "running", other.state
    with client.tick("backup", named="one") as tick:
        assert not tick.begun and tick.state == "done", tick.state
    try:
        with client.tick("backup", named="two", wait=GENEROUS) as tick:
            assert tick.begun, tick.state
            raise ValueError("disk full")
    except ValueError:
        pass
    seen = client.tick("backup", named="two").look()
    assert seen["state"] == "failed" and "disk full" in seen["why"], seen


def forked():
    """A child holds nothing of its parent's, takes nothing from it, and can begin again."""
    client = Client(URL)
    with client.election("report", ttl=TTL) as joined, client.lock("invoices", ttl=TTL) as held:
        term = joined.wait_for_term(GENEROUS)
        child = os.fork()
        if child == 0:
            try:
                assert not term.is_valid() and not held.is_valid()
                assert joined.term is None and joined.wait_for_term(1) is None
                joined.close()
                with Client(URL).lock("other") as own:
                    assert own.is_valid()
                os._exit(0)
            except BaseException:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        before = term.remaining()
        wait_until("it is renewed", lambda: term.remaining() > before)
        assert term.is_valid() and held.is_valid()


def refused():
    for wrong in ("nowhere", "ftp://x", "http://"):
        try:
            Client(wrong)
        except Refused:
            continue
        raise AssertionError(wrong)
    try:
        Client(URL).election("report", within=0.1).join()
    except Refused as error:
        assert error.code == "bad-setting" and "within_ms" in str(error)
    try:
        Client("http://127.0.0.1:1").status()
    except Unavailable as error:
        assert error.code == "unreachable"


def asyncio_all():
    asyncio.run(in_asyncio())


async def in_asyncio():
    client = aio.Client(URL)
    async with client.election("report", ttl=TTL) as joined:
        async for term in joined.terms():
            first = term.remaining()
            while term.remaining() <= first:
                await asyncio.sleep(0.01)
            assert await term.run(asyncio.sleep(0, "done")) == "done"
            break
    assert not term.is_valid()
    async with client.lock("invoices") as term:
        assert term.is_valid()
        try:
            await client.lock("invoices").acquire()
        except NotAcquired:
            pass

    @client.leader_only("invoices", wait=GENEROUS)
    async def work(row):
        return row + 1

    assert await work(1) == 2
    async with client.tick("backup", number=1) as tick:
        assert tick.begun
    async with client.tick("backup", number=1) as tick:
        assert tick.state == "done"


async def asyncio_lost(stop):
    joined = await aio.Client(URL).election("report", ttl=TTL).join()
    term = await asyncio.wait_for(joined.wait_for_term(), GENEROUS)
    os.kill(PID, stop)
    try:
        await asyncio.wait_for(term.run(asyncio.sleep(3600)), GENEROUS)
    except Lost:
        assert lease_left("report") > 0, "told after the end of the lease"
    assert not term.is_valid()
    if stop == signal.SIGSTOP:
        os.kill(PID, signal.SIGCONT)
        assert await asyncio.wait_for(joined.wait_for_term(), GENEROUS)
    await joined.close()


def asyncio_stopped():
    asyncio.run(asyncio_lost(signal.SIGSTOP))


def asyncio_killed():
    asyncio.run(asyncio_lost(signal.SIGKILL))


def store_answers():
    try:
        return Client(URL).tick("any", named="none").look()["state"] == "open"
    except Unavailable:
        return False


if __name__ == "__main__":
    wait_until("the store answers", store_answers)
    globals()[sys.argv[1]]()
    print(sys.argv[1], "holds with", tenure_client.__file__)
