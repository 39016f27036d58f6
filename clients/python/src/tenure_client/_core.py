"""What both clients share: the clock, the deadline of a term, requests and errors."""

from __future__ import annotations

import inspect
import json
import os
import secrets
import ssl
import sys
import threading
import time
import urllib.parse
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

# How long to wait for an answer that has nothing to wait for.
REQUEST_TIMEOUT = 5.0
# How long the sidecar may hold an answer back until there is news, in seconds.
NEWS_WAIT = 15.0
# How soon to ask again after a failure.
RETRY_AFTER = 0.2
# An answer longer than this is none of the sidecar's.
ANSWER_LEN_MAX = 4 * 1024 * 1024


class TenureError(Exception):
    """What went wrong. `code` is a stable word, the text says what to do."""

    def __init__(self, text: str, code: str = "", status: int = 0) -> None:
        super().__init__(text)
        self.code = code
        self.status = status


class Unavailable(TenureError):
    """The sidecar, or the store behind it, does not answer."""


class Refused(TenureError):
    """The request was wrong: repeating it does not help."""


class Conflict(TenureError):
    """Somebody else is in the way; `code` says how."""


class NotAcquired(Conflict):
    """Another holds the lock."""


class Lost(TenureError):
    """It is not held any more, and another may have worked since."""


def _now() -> float:
    """Seconds on a clock that never jumps. On Linux it goes on while the machine sleeps."""
    return time.monotonic()


if hasattr(time, "CLOCK_BOOTTIME"):

    def _now() -> float:  # noqa: F811
        return time.clock_gettime(time.CLOCK_BOOTTIME)


now = _now

# Grows in each forked child: what the parent holds is not the child's.
_generation = 0


def _forked() -> None:
    global _generation
    _generation += 1


os.register_at_fork(after_in_child=_forked)


def generation() -> int:
    return _generation


class Term:
    """What may be acted on for a while: a leadership, a lock, or a tick that runs.

    Its deadline counts from before the request whose answer it came with, so it is over before
    anybody else can begin, whatever happened to the sidecar. It is never valid again once it was
    lost, and never valid in a forked child.
    """

    def __init__(self, name: str, token: int, deadline: float) -> None:
        self.name = name
        #: Send it along with every write.
        self.token = token
        #: Why it was lost, once it was.
        self.lost_because: Optional[str] = None
        self._deadline = deadline
        self._born_in = _generation
        self._listeners: List[Callable[["Term"], None]] = []

    def is_valid(self) -> bool:
        """Whether to go on. No I/O; right even if no other thread has run for a while."""
        return self.remaining() > 0

    def remaining(self) -> float:
        """How many seconds are left unless it is renewed."""
        if self.lost_because is not None or self._born_in != _generation:
            return 0.0
        return max(0.0, self._deadline - now())

    def check(self) -> None:
        """Raises `Lost` unless it is valid."""
        if not self.is_valid():
            raise Lost(f"{self.name}: {self.lost_because or 'not renewed in time'}", "lost")

    def on_lost(self, listener: Callable[["Term"], None]) -> None:
        """Calls `listener` once it is lost, from a thread of the client; at once if it is."""
        self._listeners.append(listener)
        if not self.is_valid():
            self._tell()

    def _extend(self, deadline: float) -> bool:
        if not self.is_valid():
            return False
        self._deadline = max(self._deadline, deadline)
        return True

    def _lose(self, why: str) -> None:
        if self._born_in == _generation and self.lost_because is None:
            self.lost_because = why
        self._tell()

    def _tell(self) -> None:
        while self._listeners:
            try:
                listener = self._listeners.pop(0)
            except IndexError:
                return
            try:
                listener(self)
            except Exception:
                # The thread that tells has other terms to watch.
                sys.excepthook(*sys.exc_info())

    def __repr__(self) -> str:
        return f"<Term {self.name!r} token={self.token} remaining={self.remaining():.3f}>"


class Caller:
    """What a program holds, or wants to, under a word that only it knows.

    A forked child has a word of its own: by that of its parent it would hold what the parent holds.
    For the same reason it can be neither copied nor pickled.
    """

    name: str

    def __init__(self) -> None:
        self._keeper: Any = None
        self._draw()

    def _draw(self) -> None:
        self._word, self._drawn_in = draw_owner(), _generation
        #: Whether somebody is taking it just now; never that of a parent.
        self._taking = threading.Lock()

    def _enter(self) -> None:
        """In a forked child it begins as one that holds nothing."""
        if self._drawn_in != _generation:
            self._keeper = None
            self._draw()

    @property
    def _owner(self) -> str:
        self._enter()
        return self._word

    def _take_turn(self) -> threading.Lock:
        """The right to take it; for one at a time, since both would be told that they hold it."""
        self._enter()
        if not self._taking.acquire(blocking=False):
            raise Refused(f"{self.name!r} is being taken by this object: use another", "held")
        if self._keeper is not None:
            self._taking.release()
            raise Refused(f"{self.name!r} is held by this object: release it first", "held")
        return self._taking

    def __reduce_ex__(self, _: Any) -> Any:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled: make another one")


def deadline_of(sent_at: float, answer: Mapping[str, Any]) -> float:
    """Until when an answer may be acted on, counted from before it was asked for."""
    return sent_at + answer.get("valid_for_ms", 0) / 1000.0


def ask_again_after(sent_at: float) -> float:
    """How soon to ask again whether this program leads: an answer that came at once need not be
    followed by a question at once."""
    return max(0.0, sent_at + RETRY_AFTER - now())


def renew_after(valid_for: float) -> float:
    """How soon to renew what is valid for so long: three tries fit."""
    return max(0.02, valid_for / 4)


def runs_later(function: Callable[..., Any]) -> bool:
    """Whether a call only makes something that runs when somebody asks it to go on."""
    kinds = (
        inspect.iscoroutinefunction,
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
    )
    return any(is_kind(function) for is_kind in kinds)


def draw_owner() -> str:
    return secrets.token_urlsafe(24).replace("=", "")


def millis(seconds: Optional[float]) -> Optional[int]:
    return None if seconds is None else int(seconds * 1000)


def body_of(**fields: Any) -> Dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def path_of(kind: str, name: str, verb: str = "", **words: Any) -> str:
    path = f"/{kind}/{urllib.parse.quote(name, safe='')}"
    if verb:
        path += f"/{verb}"
    words = body_of(**words)
    return path + ("?" + urllib.parse.urlencode(words) if words else "")


class Address:
    """Where the sidecar is: `http://…`, `https://…` or `unix:/path`."""

    def __init__(
        self, url: str, token: Optional[str], context: Optional[ssl.SSLContext]
    ) -> None:
        self.unix: Optional[str] = None
        self.tls: Optional[ssl.SSLContext] = None
        self.prefix = ""
        self.token = token
        if url.startswith("unix:"):
            self.unix = url[len("unix:") :]
            self.host_header = self.host = "localhost"
            self.port = 0
            return
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Refused(f"{url!r} is not http://…, https://… or unix:/path", "bad-address")
        self.host = parts.hostname
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.host_header = parts.netloc.rpartition("@")[2]
        self.prefix = parts.path.rstrip("/")
        if parts.scheme == "https":
            self.tls = context or ssl.create_default_context()

    def request(
        self, method: str, path: str, body: Optional[Mapping[str, Any]]
    ) -> Tuple[str, Dict[str, str], bytes]:
        headers = {"Host": self.host_header, "Connection": "close", "Accept": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        data = b""
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        if method != "GET":
            headers["Content-Length"] = str(len(data))
        return self.prefix + path, headers, data


def read_answer(status: int, text: bytes) -> Any:
    """The answer, or the error that it tells of."""
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise Unavailable(f"the answer is not JSON: is this a sidecar? {error}", "odd", status)
    if 200 <= status < 300:
        return answer
    told = answer.get("error", "") if isinstance(answer, dict) else ""
    code = answer.get("code", "") if isinstance(answer, dict) else ""
    kind = TenureError
    if status in (404, 409):
        kind = Conflict
    elif status >= 500:
        kind = Unavailable
    elif status >= 400:
        kind = Refused
    raise kind(told or f"status {status}", code, status)


def as_lost(error: Conflict) -> TenureError:
    return Lost(str(error), error.code, error.status)
