"""The client for asyncio. Everything here belongs to one event loop.

    async with Client().election("nightly-report") as election:
        async for term in election.terms():
            await term.run(work(term))     # cancelled when the term is lost
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import ssl
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, Mapping, Optional, TypeVar

from . import _core
from ._core import Conflict, Lost, NotAcquired, Refused, TenureError, Unavailable

T = TypeVar("T")

__all__ = ["Client", "Election", "Lock", "Term", "Tick"]


async def _end(working: "asyncio.Future[Any]") -> None:
    """Cancels it, and returns when it has ended, whatever else is cancelled meanwhile."""
    while not working.done():
        working.cancel()
        try:
            await asyncio.wait({working})
        except asyncio.CancelledError:
            pass


class Term(_core.Term):
    """A term that can be awaited; see `tenure_client.Term`."""

    def __init__(self, name: str, token: int, deadline: float) -> None:
        super().__init__(name, token, deadline)
        self._lost = asyncio.Event()

    async def wait_until_lost(self) -> None:
        """Returns when it must not be acted on any more."""
        while self.is_valid() and not self._lost.is_set():
            try:
                await asyncio.wait_for(self._lost.wait(), self.remaining())
            except asyncio.TimeoutError:
                pass

    async def run(self, work: Awaitable[T]) -> T:
        """Awaits `work`, and cancels it when the term is lost: then `Lost` is raised."""
        if not self.is_valid():
            # Not even its first step may be done.
            if inspect.iscoroutine(work):
                work.close()
            self.check()
        working = asyncio.ensure_future(work)
        losing = asyncio.ensure_future(self.wait_until_lost())
        try:
            await asyncio.wait({working, losing}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            await _end(working)
            raise Lost(f"{self.name}: {self.lost_because or 'not renewed in time'}", "lost")
        finally:
            losing.cancel()
            # Whoever cancelled this may release what the work is still using.
            await _end(working)

    def _lose(self, why: str) -> None:
        super()._lose(why)
        self._lost.set()


class Client:
    """A sidecar. Nothing is sent before something is asked for."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8420",
        *,
        token: Optional[str] = None,
        ssl_context: Optional[ssl.SSLContext] = None,
    ) -> None:
        self._address = _core.Address(url, token, ssl_context)

    async def request(
        self,
        method: str,
        path: str,
        body: Optional[Mapping[str, Any]] = None,
        timeout: float = _core.REQUEST_TIMEOUT,
    ) -> Any:
        """Sends one request and returns its answer. `docs/sidecar.md` lists the routes."""
        try:
            status, text = await asyncio.wait_for(self._exchange(method, path, body), timeout)
        except asyncio.TimeoutError as error:
            raise Unavailable(f"no answer within {timeout:.2f} s", "unreachable") from error
        except (OSError, ValueError, IndexError, asyncio.IncompleteReadError) as error:
            raise Unavailable(f"the sidecar does not answer: {error}", "unreachable") from error
        return _core.read_answer(status, text)

    async def _exchange(self, method: str, path: str, body: Optional[Mapping[str, Any]]) -> Any:
        address = self._address
        if address.unix is not None:
            reader, writer = await asyncio.open_unix_connection(address.unix)
        else:
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=address.tls
            )
        try:
            path, headers, data = address.request(method, path, body)
            lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode() + data)
            await writer.drain()
            status = int((await reader.readline()).split()[1])
            length: Optional[int] = None
            while (line := (await reader.readline()).decode("latin-1").strip()):
                name, _, value = line.partition(":")
                if name.lower() == "content-length":
                    length = int(value)
            if length is None or length > _core.ANSWER_LEN_MAX:
                raise ValueError("an answer without a bounded length")
            return status, await reader.readexactly(length)
        finally:
            writer.close()

    async def is_leader(self, name: str) -> bool:
        """Whether the sidecar leads `name` at the moment, for elections of its configuration."""
        try:
            answer = await self.request("GET", _core.path_of("leader", name))
        except Unavailable:
            return False
        return bool(answer.get("is_leader"))

    async def status(self) -> Dict[str, Any]:
        """Everything that the sidecar knows."""
        return await self.request("GET", "/status")

    def election(self, name: str, **settings: Any) -> "Election":
        """An election to take part in; see `tenure_client.Election`."""
        return Election(self, name, **settings)

    def lock(self, name: str, **settings: Any) -> "Lock":
        """A lock to take; see `tenure_client.Lock`."""
        return Lock(self, name, **settings)

    def tick(self, name: str, **settings: Any) -> "Tick":
        """A tick of a job to run here; see `tenure_client.Tick`."""
        return Tick(self, name, **settings)

    def leader_only(self, name: str, **settings: Any) -> Callable[..., Any]:
        """Makes an async function run only while this caller holds the lock `name`, and cancels it
        when that is lost; otherwise it returns None. A parameter called `term` gets the term."""

        def decorate(function: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[Optional[T]]]:
            if inspect.isasyncgenfunction(function) or not _core.runs_later(function):
                raise TypeError(f"{function!r} is no async function")
            takes_term = "term" in inspect.signature(function).parameters

            @functools.wraps(function)
            async def guarded(*args: Any, **words: Any) -> Optional[T]:
                lock = self.lock(name, **settings)
                try:
                    term = await lock.acquire()
                except NotAcquired:
                    return None
                async with lock:
                    if takes_term:
                        words["term"] = term
                    return await term.run(function(*args, **words))

            return guarded

        return decorate


class _Keeper:
    """Renews in a task. The deadline has a timer of its own, and every check reads the clock."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.term: Optional[Term] = None
        self.is_closed = False
        #: The token of the term that this program does not want any more.
        self.resigned: Optional[int] = None
        self._news = asyncio.Event()
        self._born_in = _core.generation()
        self._timer: Optional[asyncio.TimerHandle] = None
        self._task: Optional["asyncio.Task[None]"] = None

    def start(self, first_pause: float = 0.0) -> None:
        self._task = asyncio.ensure_future(self._keep(first_pause))

    def is_ours(self) -> bool:
        return self._born_in == _core.generation()

    async def close(self, why: str) -> None:
        if not self.is_ours():
            return
        self.is_closed = True
        self.lose(why)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def lose(self, why: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        term, self.term = self.term, None
        if term is not None:
            term._lose(why)
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def news(self, timeout: Optional[float]) -> None:
        try:
            await asyncio.wait_for(self._news.wait(), timeout)
        except asyncio.TimeoutError:
            pass

    def settle(self, sent_at: float, answer: Mapping[str, Any]) -> float:
        valid_for = answer.get("valid_for_ms", 0) / 1000.0
        token, deadline = answer.get("token"), _core.deadline_of(sent_at, answer)
        if token is None or valid_for <= 0 or token == self.resigned:
            self.lose("another leads, or nobody")
            return _core.ask_again_after(sent_at)
        known = self.term
        if known is None or known.token != token or not known._extend(deadline):
            self.lose("a later term began")
            if not self.is_closed and deadline > _core.now():
                self.term = Term(self.name, token, deadline)
                self._tell()
        self._wind()
        return _core.renew_after(valid_for)

    def _wind(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        term = self.term
        if term is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(term.remaining(), self._ring, term)

    def _ring(self, term: Term) -> None:
        if self.term is not term:
            return
        if term.is_valid():
            self._wind()
        else:
            self.lose("not renewed in time")

    def patience(self) -> float:
        left = self.term.remaining() if self.term is not None else 0.0
        return min(_core.REQUEST_TIMEOUT, max(0.05, left / 2)) if left else _core.REQUEST_TIMEOUT

    async def ask(self) -> float:
        raise NotImplementedError

    async def _keep(self, pause: float) -> None:
        while not self.is_closed and pause >= 0:
            await asyncio.sleep(pause)
            try:
                pause = await self.ask()
            except Exception:  # Whatever it is, the deadline stands; ask again.
                left = self.term.remaining() if self.term is not None else 0.0
                pause = min(_core.RETRY_AFTER, max(0.02, left / 8)) if left else _core.RETRY_AFTER


class Election(_core.Caller):
    """Takes part in an election; see `tenure_client.Election`."""

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        within: float = 10.0,
        ttl: Optional[float] = None,
        priority: Optional[int] = None,
        version: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        require_beat: Optional[float] = None,
    ) -> None:
        super().__init__()
        self._client, self.name, self._within = client, name, within
        self._asked = _core.body_of(
            within_ms=_core.millis(within),
            ttl_ms=_core.millis(ttl),
            priority=priority,
            version=version,
            metadata=dict(metadata) if metadata else None,
            require_beat_ms=_core.millis(require_beat),
        )

    async def join(self) -> "Election":
        self._enter()
        if self._keeper is not None:
            return self
        turn = self._take_turn()
        try:
            await self._ask_to_join()
            self._keeper = _ElectionKeeper(self)
            self._keeper.start()
        finally:
            turn.release()
        return self

    async def _ask_to_join(self) -> None:
        asked = {"owner": self._owner, **self._asked}
        await self._client.request("POST", _core.path_of("elections", self.name), asked)

    async def close(self) -> None:
        """Leaves the election. End the work before."""
        keeper, self._keeper = self._keeper, None
        if keeper is None or not keeper.is_ours():
            return
        await keeper.close("closed")
        path = _core.path_of("elections", self.name, owner=self._owner)
        try:
            await self._client.request("DELETE", path, timeout=_core.NEWS_WAIT)
        except (Conflict, Unavailable):
            pass  # Left already, or left soon because nobody keeps it.

    @property
    def term(self) -> Optional[Term]:
        term = self._keeper.term if self._keeper is not None else None
        return term if term is not None and term.is_valid() else None

    def is_leader(self) -> bool:
        return self.term is not None

    async def wait_for_term(self) -> Optional[Term]:
        """Waits until this program leads; None when it was closed."""
        while self._keeper is not None and self._keeper.is_ours():
            if self.term is not None:
                return self.term
            await self._keeper.news(None)
        return None

    async def terms(self) -> AsyncIterator[Term]:
        """Every term that this program gets, until it is closed."""
        while True:
            term = await self.wait_for_term()
            if term is None:
                return
            yield term
            await term.wait_until_lost()

    async def resign(self) -> None:
        """Ends the term, if this program has one; see `tenure_client.Election.resign`."""
        keeper, term = self._keeper, self.term
        if keeper is None or term is None:
            return
        keeper.resigned = term.token
        keeper.lose("resigned")
        path = _core.path_of("resign", self.name)
        try:
            await self._client.request("POST", path, {"token": term.token}, _core.NEWS_WAIT)
        except Conflict:
            pass  # It is over already.

    async def beat(self) -> None:
        """Says that the work made progress, where `require_beat` asks for that."""
        path = _core.path_of("beat", self.name)
        await self._client.request("POST", path, {"owner": self._owner})

    async def __aenter__(self) -> "Election":
        return await self.join()

    async def __aexit__(self, *_: Any) -> None:
        await self.close()


class _ElectionKeeper(_Keeper):
    def __init__(self, election: Election) -> None:
        super().__init__(election.name)
        self._election = election

    async def ask(self) -> float:
        election = self._election
        client, patience = election._client, self.patience()
        body: Dict[str, Any] = {"owner": election._owner}
        if self.term is None:
            wait = min(_core.NEWS_WAIT, election._within / 2)
            body["wait_ms"] = int(wait * 1000)
            patience += wait
        sent_at = _core.now()
        try:
            path = _core.path_of("elections", self.name, "keep")
            return self.settle(sent_at, await client.request("POST", path, body, patience))
        except Conflict as error:
            self.lose(str(error))
            if error.code != "not-found":
                return _core.RETRY_AFTER
            # The sidecar is a new one, or had not heard of us for too long.
            await election._ask_to_join()
            return 0.0


class _HoldKeeper(_Keeper):
    def __init__(self, client: Client, kind: str, name: str, owner: str) -> None:
        super().__init__(name)
        self._client, self._kind, self._owner = client, kind, owner

    async def ask(self) -> float:
        first = self.term
        if first is None:
            return -1.0  # Told lost; what was told lost is not held again.
        sent_at = _core.now()
        path = _core.path_of(self._kind, self.name, "keep")
        try:
            answer = await self._client.request(
                "POST", path, {"owner": self._owner}, self.patience()
            )
        except Conflict as error:
            self.lose(str(error))
            return -1.0
        pause = self.settle(sent_at, answer)
        if self.term is not first:
            self.lose("not renewed in time")
            return -1.0
        return pause


class Lock(_core.Caller):
    """A lock; see `tenure_client.Lock`."""

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        wait: float = 0.0,
        within: float = 10.0,
        ttl: Optional[float] = None,
    ) -> None:
        super().__init__()
        self._client, self.name, self._wait = client, name, wait
        self._asked = _core.body_of(
            wait_ms=_core.millis(wait),
            within_ms=_core.millis(within),
            ttl_ms=_core.millis(ttl),
        )
        self._term: Optional[Term] = None

    async def acquire(self) -> Term:
        """Takes it, and returns its term. Raises `NotAcquired` if another holds it."""
        turn = self._take_turn()
        try:
            return await self._acquire()
        finally:
            turn.release()

    async def _acquire(self) -> Term:
        sent_at = _core.now()
        asked = {"owner": self._owner, **self._asked}
        try:
            path = _core.path_of("locks", self.name)
            patience = self._wait + _core.REQUEST_TIMEOUT
            answer = await self._client.request("POST", path, asked, patience)
        except Conflict as error:
            raise NotAcquired(str(error), error.code, error.status) from error
        keeper = _HoldKeeper(self._client, "locks", self.name, self._owner)
        pause = keeper.settle(sent_at, answer)
        if keeper.term is None:
            raise NotAcquired(f"{self.name}: the answer came too late", "late")
        self._keeper, self._term = keeper, keeper.term
        keeper.start(pause)
        return keeper.term

    async def release(self) -> None:
        """Releases it. Raises `Lost` if it was lost before: another may have worked since."""
        keeper, self._keeper = self._keeper, None
        if keeper is None or not keeper.is_ours():
            return
        await keeper.close("released")
        try:
            path = _core.path_of("locks", self.name, owner=self._owner)
            await self._client.request("DELETE", path)
        except Conflict as error:
            raise _core.as_lost(error) from error

    async def __aenter__(self) -> Term:
        self._enter()
        if self._keeper is not None and self._term is not None:
            return self._term
        return await self.acquire()

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        try:
            await self.release()
        except TenureError:
            if kind is None:
                raise


class Tick(_core.Caller):
    """One run of a job; see `tenure_client.Tick`."""

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        every: Optional[float] = None,
        number: Optional[int] = None,
        named: Optional[str] = None,
        wait: float = 0.0,
        within: float = 10.0,
        ttl: Optional[float] = None,
        rerun_crashed: Optional[bool] = None,
    ) -> None:
        super().__init__()
        self._client, self.name, self._wait = client, name, wait
        self._which = _core.body_of(every_ms=_core.millis(every), number=number, named=named)
        self._asked = _core.body_of(
            wait_ms=_core.millis(wait),
            within_ms=_core.millis(within),
            ttl_ms=_core.millis(ttl),
            rerun_crashed=rerun_crashed,
            **self._which,
        )
        self.term: Optional[Term] = None
        self.state = "open"

    @property
    def begun(self) -> bool:
        return self.state == "begun"

    async def begin(self) -> bool:
        """Begins it. False if it has run or runs elsewhere: `state` says which."""
        turn = self._take_turn()
        try:
            return await self._begin()
        finally:
            turn.release()

    async def _begin(self) -> bool:
        sent_at = _core.now()
        path = _core.path_of("ticks", self.name)
        asked = {"owner": self._owner, **self._asked}
        try:
            patience = self._wait + _core.REQUEST_TIMEOUT
            answer = await self._client.request("POST", path, asked, patience)
        except Conflict as error:
            self.state = error.code
            return False
        self.state = answer["state"]
        if self.begun:
            keeper = _HoldKeeper(self._client, "ticks", self.name, self._owner)
            pause = keeper.settle(sent_at, answer)
            if keeper.term is None:
                self.state = "late"
                return False
            self._keeper, self.term = keeper, keeper.term
            keeper.start(pause)
        return self.begun

    async def finish(self, result: str = "ok", why: str = "") -> None:
        """Records the outcome: "ok", "failed" or "not-started"."""
        keeper, self._keeper = self._keeper, None
        if keeper is None or not keeper.is_ours():
            return
        body = {"owner": self._owner, "result": result, "why": why[:1000]}
        try:
            path = _core.path_of("ticks", self.name, "finish")
            await self._client.request("POST", path, body, _core.NEWS_WAIT)
            self.state = {"ok": "done", "failed": "failed"}.get(result, "open")
        except Conflict as error:
            self.state = "unfinished"
            raise _core.as_lost(error) from error
        finally:
            await keeper.close("finished")

    async def __aenter__(self) -> "Tick":
        await self.begin()
        return self

    async def __aexit__(self, kind: Any, error: Any, _: Any) -> None:
        if kind is None:
            await self.finish()
            return
        try:
            await self.finish("failed", f"{kind.__name__}: {error}")
        except TenureError:
            pass  # What the block raised is what matters.
