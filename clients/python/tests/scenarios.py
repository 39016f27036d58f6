"""What the client has to show against a real sidecar on a real store.

The caller starts both and ends them: TENURE_SIDECAR is the sidecar's address, TENURE_SIDECAR_PID
its process, TENURE_STORE_PORT the port of the store. The argument names the scenario.
"""

import asyncio
import copy
import os
import pickle
import signal
import socket
import sys
import threading
import time

import tenure_client
from tenure_client import Client, Conflict, Lost, NotAcquired, Refused, Unavailable, aio

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


def forked_before():
    """An object from before the fork is another caller's in the child: by the word of its parent
    both would be told that they hold the lock."""
    client = Client(URL)
    lock, joined = client.lock("invoices", ttl=TTL), client.election("report", ttl=TTL)
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            lock.acquire()
            joined.join()
            os.write(theirs, b"held")
            time.sleep(3600)
        finally:
            os._exit(1)
    try:
        assert os.read(ours, 4) == b"held"
        try:
            lock.acquire()
        except NotAcquired:
            pass
        else:
            raise AssertionError("parent and child hold one lock")
        try:
            joined.join()
        except Conflict as error:
            assert error.code == "other-owner", error.code
        else:
            raise AssertionError("parent and child are one candidate")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        try:
            copied(lock)
        except TypeError:
            continue
        raise AssertionError(f"{copied} makes a second holder")


def resumed():
    """A holder that was stopped for longer than it may be silent finds its lock lost, whatever it
    asks first, and another has had it meanwhile."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            term = Client(URL).lock("invoices", within=2.0, ttl=TTL).acquire()
            while True:
                os.write(theirs, b"1" if term.is_valid() else b"0")
                time.sleep(0.01)
        finally:
            os._exit(1)
    try:
        assert os.read(ours, 1) == b"1"
        os.kill(child, signal.SIGSTOP)
        Client(URL).lock("invoices", wait=GENEROUS).acquire()
        # What it said before it was stopped.
        os.set_blocking(ours, False)
        while True:
            try:
                if not os.read(ours, 65536):
                    break
            except BlockingIOError:
                break
        os.set_blocking(ours, True)
        os.kill(child, signal.SIGCONT)
        said = b""
        while len(said) < 20:
            said += os.read(ours, 1)
        assert set(said) == {ord("0")}, said
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def restarted():
    """The sidecar is killed and another one takes its place: the caller joins that."""
    joined = Client(URL).election("report", ttl=TTL).join()
    term = joined.wait_for_term(GENEROUS)
    print("it leads", flush=True)
    wait_until("it is lost", lambda: not term.is_valid())
    again = joined.wait_for_term(60.0)
    assert again.token > term.token, (again, term)
    joined.close()


def threads():
    """Two threads that take one object at once: one gets it."""
    lock = Client(URL).lock("invoices", wait=0.0)
    start, outcomes = threading.Barrier(8), []

    def take():
        start.wait()
        try:
            outcomes.append(lock.acquire())
        except (Refused, NotAcquired):
            outcomes.append(None)

    takers = [threading.Thread(target=take) for _ in range(8)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    assert len([term for term in outcomes if term]) == 1, outcomes
    lock.release()

    # What is made under the lock and runs after it is no work under the lock.
    for later in (asyncio.sleep, rows):
        try:
            Client(URL).leader_only("invoices")(later)
        except TypeError:
            continue
        raise AssertionError(f"{later} was taken")


def rows():
    yield 1


def listeners():
    """A listener that fails keeps nobody else from being told."""
    told = []
    sys.excepthook = lambda *error: told.append(error[0])
    joined = Client(URL).election("report", ttl=TTL).join()
    term = joined.wait_for_term(GENEROUS)
    term.on_lost(lambda _: 1 / 0)
    term.on_lost(lambda lost: told.append(lost.token))
    os.kill(PID, signal.SIGSTOP)
    wait_until("all were told", lambda: told == [ZeroDivisionError, term.token])
    os.kill(PID, signal.SIGCONT)
    again = joined.wait_for_term(GENEROUS)
    again.on_lost(lambda lost: told.append("again"))
    os.kill(PID, signal.SIGSTOP)
    wait_until("the next one is told as well", lambda: told[-1] == "again")
    os.kill(PID, signal.SIGCONT)
    joined.close()


def resigns():
    """It ends its own term, and never that of another."""
    first = Client(URL).election("report", ttl=TTL).join()
    term = first.wait_for_term(GENEROUS)
    first.resign()
    assert not term.is_valid() and term.lost_because == "resigned"
    again = first.wait_for_term(GENEROUS)
    assert again.token > term.token
    try:
        Client(URL).request("POST", "/resign/report", {"token": term.token})
    except Conflict:
        pass
    else:
        raise AssertionError("a later term was ended by an earlier token")
    assert again.is_valid()
    first.close()


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


def asyncio_cancelled():
    asyncio.run(in_asyncio_cancelled())


async def in_asyncio_cancelled():
    """A lock is released after the work under it has ended, and nothing begins in a term that is
    over."""
    client = aio.Client(URL)
    steps = []

    async def work():
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.3)
            steps.append("work ended")

    async def under_lock():
        async with client.lock("invoices") as term:
            await term.run(work())
        steps.append("never")

    async def release_is_seen():
        while True:
            try:
                async with client.lock("invoices", wait=GENEROUS):
                    steps.append("next")
                    return
            except NotAcquired:
                pass

    task = asyncio.ensure_future(under_lock())
    while lease_left("invoices") < 0:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    following = asyncio.ensure_future(release_is_seen())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await following
    assert steps == ["work ended", "next"], steps

    lock = client.lock("invoices", wait=GENEROUS)
    term = await lock.acquire()
    await lock.release()

    async def begins():
        steps.append("begun")

    try:
        await term.run(begins())
    except Lost:
        pass
    else:
        raise AssertionError("work ran in a term that was over")
    assert "begun" not in steps

    # Two tasks with one object.
    lock = client.lock("invoices", wait=GENEROUS)
    outcomes = await asyncio.gather(lock.acquire(), lock.acquire(), return_exceptions=True)
    assert len([one for one in outcomes if isinstance(one, Refused)]) == 1, outcomes
    await lock.release()


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
