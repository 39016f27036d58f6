"""Elections, locks and jobs over the HTTP of a Tenure sidecar.

    from tenure_client import Client

    client = Client("http://127.0.0.1:8420")        # or "unix:/run/tenure/sidecar.sock"
    with client.election("nightly-report") as election:
        for term in election.terms():
            while term.is_valid():
                write(row(), token=term.token)

`tenure_client.aio` has the same for asyncio. What is told lost is told before anybody else can
begin: each `Term` has a deadline of its own, counted from before the request was sent. Only a
token that the resource itself checks keeps a late write out.
"""

from ._core import (
    Conflict,
    Lost,
    NotAcquired,
    Refused,
    Term,
    TenureError,
    Unavailable,
)
from ._sync import Client, Election, Lock, Tick

__all__ = [
    "Client",
    "Conflict",
    "Election",
    "Lock",
    "Lost",
    "NotAcquired",
    "Refused",
    "Term",
    "TenureError",
    "Tick",
    "Unavailable",
]
