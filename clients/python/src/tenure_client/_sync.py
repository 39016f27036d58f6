"""The client for programs without asyncio. Threads renew; any thread may ask a term."""

from __future__ import annotations

import functools
import http.client
import inspect
import socket
import ssl
import threading
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, TypeVar

from . import _core
from ._core import Conflict, Lost, NotAcquired, Refused, Term, TenureError, Unavailable

F = TypeVar("F", bound=Callable[..., Any])


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


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

    def request(
        self,
        method: str,
        path: str,
        body: Optional[Mapping[str, Any]] = None,
        timeout: float = _core.REQUEST_TIMEOUT,
    ) -> Any:
        """Sends one request and returns its answer. `docs/sidecar.md` lists the routes."""
        address = self._address
        connection: http.client.HTTPConnection
        if address.unix is not None:
            connection = _UnixConnection(address.unix, timeout)
        elif address.tls is not None:
            connection = http.client.HTTPSConnection(
                address.host, address.port, timeout=timeout, context=address.tls
            )
        else:
            connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout)
        path, headers, data = address.request(method, path, body)
        try:
            connection.request(method, path, body=data or None, headers=headers)
            response = connection.getresponse()
            text = response.read(_core.ANSWER_LEN_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"the sidecar does not answer: {error}", "unreachable") from error
        finally:
            connection.close()
        return _core.read_answer(response.status, text)

    def is_leader(self, name: str) -> bool:
        """Whether the sidecar leads `name` at the moment, for elections of its configuration."""
        try:
            return bool(self.request("GET", _core.path_of("leader", name)).get("is_leader"))
        except Unavailable:
            return False

    def status(self) -> Dict[str, Any]:
        """Everything that the sidecar knows."""
        return self.request("GET", "/status")

    def election(self, name: str, **settings: Any) -> "Election":
        """An election to take part in; see `Election`."""
        return Election(self, name, **settings)

    def lock(self, name: str, **settings: Any) -> "Lock":
        """A lock to take; see `Lock`."""
        return Lock(self, name, **settings)

    def tick(self, name: str, **settings: Any) -> "Tick":
        """A tick of a job to run here; see `Tick`."""
        return Tick(self, name, **settings)

    def leader_only(self, name: str, **settings: Any) -> Callable[[F], Callable[..., Any]]:
        """Makes a function run only while this caller holds the lock `name`; otherwise it returns
        None. A parameter called `term` gets the term."""

        def decorate(function: F) -> Callable[..., Any]:
            if _core.runs_later(function):
                raise TypeError(f"{function!r} would run after the lock was released: see aio")
            takes_term = "term" in inspect.signature(function).parameters

            @functools.wraps(function)
            def guarded(*args: Any, **words: Any) -> Any:
                try:
                    lock = self.lock(name, **settings)
                    term = lock.acquire()
                except NotAcquired:
                    return None
                with lock:
                    if takes_term:
                        words["term"] = term
                    return function(*args, **words)

            return guarded

        return decorate


class _Turn:
    """The right to take what an object is for, while it is asked for."""

    def __init__(self, caller: _core.Caller) -> None:
        self._taking = caller._take_turn()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        self._taking.release()


class _Keeper:
    """Renews in a thread, and has a second one that wakes at the deadline: the first may hang in a
    request to a sidecar that is stopped."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.term: Optional[Term] = None
        self.changed = threading.Condition()
        self.is_closed = False
        #: The token of the term that this program does not want any more.
        self.resigned: Optional[int] = None
        self._born_in = _core.generation()
        self._threads = [
            threading.Thread(target=work, name=f"tenure {name}", daemon=True)
            for work in (self._keep, self._watch)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def is_ours(self) -> bool:
        """Whether this process made it; a forked child has neither threads nor terms."""
        return self._born_in == _core.generation()

    def close(self, why: str) -> None:
        if not self.is_ours():
            return
        with self.changed:
            self.is_closed = True
            term, self.term = self.term, None
            self.changed.notify_all()
        if term is not None:
            term._lose(why)

    def settle(self, sent_at: float, answer: Mapping[str, Any]) -> float:
        """Takes an answer in, and returns how soon to ask again."""
        valid_for = answer.get("valid_for_ms", 0) / 1000.0
        token = answer.get("token")
        if token is None or valid_for <= 0 or token == self.resigned:
            self.lose("another leads, or nobody")
            return _core.ask_again_after(sent_at)
        deadline = _core.deadline_of(sent_at, answer)
        with self.changed:
            known = self.term
            if known is not None and known.token == token and known._extend(deadline):
                self.changed.notify_all()
                return _core.renew_after(valid_for)
        self.lose("a later term began")
        with self.changed:
            if not self.is_closed and deadline > _core.now():
                self.term = Term(self.name, token, deadline)
            self.changed.notify_all()
        return _core.renew_after(valid_for)

    def resign(self, term: Term) -> None:
        """From now on, nothing is begun under the token of this term."""
        self.resigned = term.token
        self.lose("resigned")

    def lose(self, why: str) -> None:
        with self.changed:
            term, self.term = self.term, None
            self.changed.notify_all()
        if term is not None:
            term._lose(why)

    def patience(self) -> float:
        """How long a request may take: what is held has to be renewed, or asked for once more."""
        term = self.term
        left = term.remaining() if term is not None else 0.0
        return min(_core.REQUEST_TIMEOUT, max(0.05, left / 2)) if left else _core.REQUEST_TIMEOUT

    def ask(self) -> float:
        """Asks once, and returns how soon to ask again; negative ends it."""
        raise NotImplementedError

    def _keep(self) -> None:
        pause = self.first_pause
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.is_closed, timeout=pause)
                if self.is_closed:
                    return
            try:
                pause = self.ask()
            except Exception:  # Whatever it is, the deadline stands; ask again.
                term = self.term
                left = term.remaining() if term is not None else 0.0
                pause = min(_core.RETRY_AFTER, max(0.02, left / 8)) if left else _core.RETRY_AFTER
            if pause < 0:
                return

    first_pause = 0.0

    def _watch(self) -> None:
        while True:
            with self.changed:
                if self.is_closed:
                    return
                term = self.term
                if term is None or term.is_valid():
                    self.changed.wait(timeout=term.remaining() if term is not None else None)
                    continue
                self.term = None
                self.changed.notify_all()
            term._lose("not renewed in time")


class Election(_core.Caller):
    """Takes part in an election, through a sidecar that joins it for us.

    `within` is how many seconds this program may be silent before the sidecar leaves the election;
    `ttl` is the lease. Use it in a `with` statement, or call `join` and `close`.
    """

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

    def join(self) -> "Election":
        """Takes part from now on. Raises `Conflict` if another program took the name, `Refused` if
        a setting is wrong, and `Unavailable` if the sidecar does not answer."""
        self._enter()
        if self._keeper is not None:
            return self
        with _Turn(self):
            self._ask_to_join()
            self._keeper = _ElectionKeeper(self)
            self._keeper.start()
        return self

    def _ask_to_join(self) -> None:
        asked = {"owner": self._owner, **self._asked}
        self._client.request("POST", _core.path_of("elections", self.name), asked)

    def close(self) -> None:
        """Leaves the election. End the work before."""
        keeper, self._keeper = self._keeper, None
        if keeper is None or not keeper.is_ours():
            return
        keeper.close("closed")
        path = _core.path_of("elections", self.name, owner=self._owner)
        try:
            self._client.request("DELETE", path, timeout=_core.NEWS_WAIT)
        except (Conflict, Unavailable):
            pass  # Left already, or left soon because nobody keeps it.

    @property
    def term(self) -> Optional[Term]:
        """The current term, or None while this program does not lead."""
        keeper = self._keeper
        term = keeper.term if keeper is not None else None
        return term if term is not None and term.is_valid() else None

    def is_leader(self) -> bool:
        """Whether this program leads now. No I/O."""
        return self.term is not None

    def wait_for_term(self, timeout: Optional[float] = None) -> Optional[Term]:
        """Waits until this program leads; None after `timeout` or when it was closed."""
        keeper = self._keeper
        if keeper is None or not keeper.is_ours():
            return None
        with keeper.changed:
            keeper.changed.wait_for(lambda: keeper.is_closed or self.is_leader(), timeout)
        return self.term

    def terms(self) -> Iterator[Term]:
        """Every term that this program gets, until it is closed."""
        while self._keeper is not None:
            term = self.wait_for_term()
            if term is not None:
                yield term
                # The work is over; what is left of the term is not begun again.
                while self.term is term and self._keeper is not None:
                    keeper = self._keeper
                    with keeper.changed:
                        keeper.changed.wait(timeout=term.remaining())

    def beat(self) -> None:
        """Says that the work made progress, where `require_beat` asks for that."""
        self._client.request(
            "POST", _core.path_of("beat", self.name), {"owner": self._owner}
        )

    def resign(self) -> None:
        """Ends the term, if this program has one. End the work before. Returns when another may
        lead; until then, and while nobody else wants to, this program may be the next."""
        keeper, term = self._keeper, self.term
        if keeper is None or term is None:
            return
        keeper.resign(term)
        path = _core.path_of("resign", self.name)
        try:
            self._client.request("POST", path, {"token": term.token}, _core.NEWS_WAIT)
        except Conflict:
            pass  # It is over already.

    def __enter__(self) -> "Election":
        return self.join()

    def __exit__(self, *_: Any) -> None:
        self.close()


class _ElectionKeeper(_Keeper):
    def __init__(self, election: Election) -> None:
        super().__init__(election.name)
        self._election = election

    def ask(self) -> float:
        election = self._election
        client, leads = election._client, self.term is not None
        body = {"owner": election._owner}
        patience = self.patience()
        if not leads:
            wait = min(_core.NEWS_WAIT, election._within / 2)
            body["wait_ms"] = int(wait * 1000)
            patience += wait
        sent_at = _core.now()
        try:
            path = _core.path_of("elections", self.name, "keep")
            return self.settle(sent_at, client.request("POST", path, body, patience))
        except Conflict as error:
            self.lose(str(error))
            if error.code != "not-found":
                return _core.RETRY_AFTER
            # The sidecar is a new one, or had not heard of us for too long.
            election._ask_to_join()
            return 0.0


class _HoldKeeper(_Keeper):
    """Keeps a lock or a tick that this program holds already."""

    def __init__(
        self, client: Client, kind: str, name: str, owner: str, sent_at: float, answer: Any
    ) -> None:
        super().__init__(name)
        self._client, self._kind, self._owner = client, kind, owner
        self.first_pause = self.settle(sent_at, answer)
        self._first = self.term

    def ask(self) -> float:
        if self.term is None:
            return -1.0  # Told lost; what was told lost is not held again.
        sent_at = _core.now()
        path = _core.path_of(self._kind, self.name, "keep")
        try:
            answer = self._client.request("POST", path, {"owner": self._owner}, self.patience())
        except Conflict as error:
            self.lose(str(error))
            return -1.0
        pause = self.settle(sent_at, answer)
        if self.term is not self._first:
            self.lose("not renewed in time")
            return -1.0
        return pause


class Lock(_core.Caller):
    """A lock. `wait` is how many seconds to wait for it, `within` how long this program may be
    silent before it loses it, `ttl` its lease.

    Leaving the `with` statement releases it, and raises `Lost` if it was lost before.
    """

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

    def acquire(self) -> Term:
        """Takes it, and returns its term. Raises `NotAcquired` if another holds it."""
        with _Turn(self):
            return self._acquire()

    def _acquire(self) -> Term:
        sent_at = _core.now()
        patience = self._wait + _core.REQUEST_TIMEOUT
        asked = {"owner": self._owner, **self._asked}
        try:
            path = _core.path_of("locks", self.name)
            answer = self._client.request("POST", path, asked, patience)
        except Conflict as error:
            raise NotAcquired(str(error), error.code, error.status) from error
        keeper = _HoldKeeper(self._client, "locks", self.name, self._owner, sent_at, answer)
        if keeper.term is None:
            # Its answer came when it was over.
            raise NotAcquired(f"{self.name}: the answer came too late", "late")
        self._keeper, self._term = keeper, keeper.term
        keeper.start()
        return keeper.term

    def release(self) -> None:
        """Releases it. Raises `Lost` if it was lost before: another may have worked since."""
        keeper, self._keeper = self._keeper, None
        if keeper is None or not keeper.is_ours():
            return
        keeper.close("released")
        try:
            path = _core.path_of("locks", self.name, owner=self._owner)
            self._client.request("DELETE", path)
        except Conflict as error:
            raise _core.as_lost(error) from error

    def __enter__(self) -> Term:
        self._enter()
        if self._keeper is not None and self._term is not None:
            return self._term
        return self.acquire()

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            self.release()
        except TenureError:
            if kind is None:
                raise


class Tick(_core.Caller):
    """One run of a job, at most once per tick across all programs; say which tick with exactly one
    of `every` (seconds), `number` and `named`.

        with client.tick("backup", every=24 * 60 * 60) as tick:
            if tick.begun:
                back_up(tick.term)

    What the block raises is recorded as a failure.
    """

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
        #: The term to work under, once begun.
        self.term: Optional[Term] = None
        #: "begun", "done", "failed", "running", "unfinished", or why it is not run now.
        self.state = "open"

    @property
    def begun(self) -> bool:
        """Whether this program is to do the work."""
        return self.state == "begun"

    def begin(self) -> bool:
        """Begins it. False if it has run or runs elsewhere: `state` says which."""
        with _Turn(self):
            return self._begin()

    def _begin(self) -> bool:
        sent_at = _core.now()
        path = _core.path_of("ticks", self.name)
        asked = {"owner": self._owner, **self._asked}
        try:
            patience = self._wait + _core.REQUEST_TIMEOUT
            answer = self._client.request("POST", path, asked, patience)
        except Conflict as error:
            self.state = error.code
            return False
        self.state = answer["state"]
        if self.state == "begun":
            keeper = _HoldKeeper(self._client, "ticks", self.name, self._owner, sent_at, answer)
            if keeper.term is None:
                self.state = "late"
                return False
            self._keeper, self.term = keeper, keeper.term
            keeper.start()
        return self.begun

    def look(self) -> Dict[str, Any]:
        """The state of the tick, as the store has it."""
        return self._client.request("GET", _core.path_of("ticks", self.name, **self._which))

    def finish(self, result: str = "ok", why: str = "") -> None:
        """Records the outcome: "ok", "failed" or "not-started". Raises `Lost` if it was lost
        before, and `Unavailable` if it could not be recorded: then it may run again."""
        keeper, self._keeper = self._keeper, None
        if keeper is None or not keeper.is_ours():
            return
        body = {"owner": self._owner, "result": result, "why": why[:1000]}
        try:
            path = _core.path_of("ticks", self.name, "finish")
            self._client.request("POST", path, body, _core.NEWS_WAIT)
            self.state = {"ok": "done", "failed": "failed"}.get(result, "open")
        except Conflict as error:
            self.state = "unfinished"
            raise _core.as_lost(error) from error
        finally:
            keeper.close("finished")

    def __enter__(self) -> "Tick":
        self.begin()
        return self

    def __exit__(self, kind: Any, error: Any, _: Any) -> None:
        if kind is None:
            self.finish()
            return
        try:
            self.finish("failed", f"{kind.__name__}: {error}")
        except TenureError:
            pass  # What the block raised is what matters.
