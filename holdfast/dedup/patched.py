"""Whether threads are real: gevent and eventlet replace them by coroutines of one thread."""

from __future__ import annotations

import sys

from holdfast.errors import SettingError


def check_threads() -> None:
    """Refuse a process whose threads are patched: a client in C that waits for its broker would stop all of them,
    including the thread that renews the session.

    Raises:
        SettingError: gevent or eventlet has patched them.
    """
    for name, said in (("gevent.monkey", "is_module_patched"), ("eventlet.patcher", "is_monkey_patched")):
        patched = getattr(sys.modules.get(name), said, None)
        # Even if only the queue is patched, real threads stand still: gevent's queue has an event loop for each thread.
        if patched is not None and any(map(patched, ("threading", "thread", "queue"))):
            raise SettingError(
                "monkey patch",
                name.partition(".")[0],
                "holdfast and the brokers' clients need real threads, or one that waits stops them all: run consumers, "
                "and functions that are @idempotent, in a process of their own, without it",
            )
