"""Whether threads are threads: gevent and eventlet put coroutines of one thread in their place."""

from __future__ import annotations

import sys

from holdfast.errors import SettingError


def check_threads() -> None:
    """Refuse a process whose threads are patched: a client in C that waits for its broker would stop all of them, the
    one that renews the session as well.

    Raises:
        SettingError: gevent or eventlet has patched them.
    """
    for name, said in (("gevent.monkey", "is_module_patched"), ("eventlet.patcher", "is_monkey_patched")):
        patched = getattr(sys.modules.get(name), said, None)
        # gevent's queue alone makes threads stand still that are real ones: it has a loop of its own for each.
        if patched is not None and any(map(patched, ("threading", "thread", "queue"))):
            raise SettingError(
                "monkey patch",
                name.partition(".")[0],
                "holdfast and the brokers' clients need real threads, or one that waits stops them all: run consumers, "
                "and functions that are @idempotent, in a process of their own, without it",
            )
