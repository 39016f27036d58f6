"""What schemathesis sends otherwise than it made it up, with the reason."""

import schemathesis

# Callers may wait for a lock or a leadership for a minute: here nobody has the time.
WAIT_MAX_MS = 60_000
WAIT_MS = 100


@schemathesis.hook
def before_call(context, case, kwargs):
    if isinstance(case.body, dict):
        wait = case.body.get("wait_ms")
        if isinstance(wait, int) and WAIT_MS < wait <= WAIT_MAX_MS:
            case.body["wait_ms"] = WAIT_MS
