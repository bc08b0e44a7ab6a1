"""A process that calls idempotent functions: python -m tests.contracts.redis.idempotent_member <url> <lease_s> <what>.

It says what happens, a JSON line each, and does what it reads, a word a line.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from holdfast import RedisClaims, current_claim, idempotent
from holdfast.errors import HoldfastError


def say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")  # in one write, also unbuffered: a forked child says its own beside it
    sys.stdout.flush()


def hold(claims: RedisClaims) -> None:
    """One call of key 1, whose body ends when it is told to."""

    @idempotent(claims, key="order_id", name="f")
    def f(order_id: int) -> int:
        claim: Any = current_claim()
        say(began=order_id, fence=claim.fence)
        sys.stdin.readline()
        say(cancelled=claim.cancelled)
        return os.getpid()

    try:
        say(returned=f(1))
    except HoldfastError as error:
        say(raised=type(error).__name__)


def leave_running(claims: RedisClaims) -> None:
    """Exit while a thread that nobody waits for is in a body."""
    began = threading.Event()

    @idempotent(claims, key="order_id", name="f")
    def f(order_id: int) -> None:
        began.set()
        threading.Event().wait()

    threading.Thread(target=f, args=(1,), daemon=True).start()
    began.wait()
    say(session=claims.calls.session().id)


def leave_done(claims: RedisClaims) -> None:
    """Exit with nothing in hand; fork on the way, and let the child exit as a process does."""
    f = idempotent(claims, key="order_id", name="f", on_done="marker")(lambda order_id: None)
    f(1)
    mine = claims.calls.session().id
    child = os.fork()
    f(2 if child else 3)
    say(session=claims.calls.session().id, of_the_parent=mine, child=not child)
    if child:
        os.waitpid(child, 0)
        say(session=mine, left=claims.calls.session().renew())


def main() -> None:
    url, lease_s, what = sys.argv[1:]
    claims = RedisClaims.from_url(url, lease_s=float(lease_s))
    {"hold": hold, "leave_running": leave_running, "leave_done": leave_done}[what](claims)


if __name__ == "__main__":
    main()
