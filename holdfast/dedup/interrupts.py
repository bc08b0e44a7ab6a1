"""Errors that a signal's handler raises into a call, such as a job's time limit. They are not errors of the call."""

from __future__ import annotations

import signal
import traceback
from functools import partial
from types import CodeType
from typing import Any


def raised_by_handler(error: BaseException, handled: BaseException | None = None) -> BaseException | None:
    """Find the error that a handler has raised: this error, or one of its causes. None: no handler has raised one.

    A handler may raise the same types as the call itself (a silent socket raises TimeoutError). The handler's frame in
    the traceback tells them apart.

    Args:
        error: what the call has raised.
        handled: the exception that was being handled when the call began; it is not of this call.
    """
    handlers = _handlers()
    each: BaseException | None = error
    seen: list[BaseException] = []
    while each is not None and each is not handled and each not in seen:
        if not handlers.isdisjoint(codes_of(each)):
            return each
        seen.append(each)
        each = each.__cause__ or each.__context__
    return None


def codes_of(error: BaseException) -> set[CodeType]:
    """The code of all functions in the error's traceback."""
    return {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}


def _handlers() -> set[CodeType]:
    """The code of this process' handlers of signals."""
    found = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, partial):
            handler = handler.func
        if not callable(handler):
            continue
        code = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
        if isinstance(code, CodeType):
            found.add(code)
    return found
