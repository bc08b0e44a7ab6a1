"""Failures of handlers as people need them: a traceback, in the log once for each kind, and bounded in each letter."""

from __future__ import annotations

import logging
import traceback
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from holdfast.records import Partition

_log = logging.getLogger("holdfast")

#: The longest traceback in a letter, in bytes of UTF-8: enough for twenty calls or so. RocketMQ has 32 KiB for all
#: properties of a message, and a Kafka record is not to grow past its topic's limit for it.
MAX_TRACEBACK_BYTES = 4096
#: The innermost calls that are told, and the longest single part of them: a line of source, or the error's own text.
_CALLS = 20
_PART_BYTES = 1024
#: Kinds that are told apart; a handler may make new classes of errors for ever.
_KINDS = 200
_OURS = "holdfast.plugin."


class Failures:
    """Tells in the log of handlers that failed. One thread."""

    def __init__(self) -> None:
        #: By handler and error type: how often, and at how many it is told next.
        self._known: dict[tuple[str, type[Exception]], tuple[int, int]] = {}

    def saw(self, handler: str, partition: Partition, offset: int, error: Exception) -> None:
        """An attempt has failed: the first of its kind is logged with its traceback, then the tenth, the hundredth and
        so on without."""
        kind = (handler, type(error))
        if kind not in self._known and len(self._known) >= _KINDS:
            kind = (handler, Exception)
        count, told_at = self._known.get(kind, (0, 1))
        count += 1
        if count >= told_at:
            name = kind_of(error)
            if count == 1:
                _log.error(
                    "%s failed on %s@%d with %s; further failures of this kind are logged without a traceback",
                    handler,
                    partition,
                    offset,
                    name,
                    exc_info=_logged(error),
                )
            else:
                _log.error("%s has failed with %s %d times since the start", handler, name, count)
            told_at *= 10
        self._known[kind] = count, told_at


def _logged(error: Exception) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """For a log: the error, or, where its text or that of a cause is long (validators put the record into it), one of
    its name with the beginning of its text."""
    found: BaseException | None = error
    seen: list[BaseException] = []
    while found is not None and not any(found is each for each in seen) and len(seen) < _CALLS:
        seen.append(found)
        found = found.__cause__ or found.__context__
    if all(len(words_of(each)) <= _PART_BYTES for each in seen):
        return type(error), error, _theirs(error.__traceback__)
    text = words_of(error)
    said = text if len(text) <= _PART_BYTES else f"{text[:_PART_BYTES]}… ({len(text):,} characters)"
    kind = type(error)
    short = type(kind.__name__, (Exception,), {"__module__": kind.__module__, "__qualname__": kind.__qualname__})
    return short, short(said), _theirs(error.__traceback__)


def kind_of(error: BaseException) -> str:
    """The type of an error, with its module."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def words_of(error: BaseException, said: Callable[[BaseException], str] = str) -> str:
    """Say what an error says of itself. One that cannot even be printed keeps nothing back. Never raises."""
    try:
        return said(error)
    except Exception as broken:  # noqa: BLE001 - a __str__ of the application
        return f"(its text cannot be had: {kind_of(broken)})"


def summary_of(error: BaseException) -> str:
    """Name an error and what it says, in a line. Never raises."""
    return f"{type(error).__name__}: {words_of(error)}"


def traceback_of(error: Exception) -> str:
    """The end of an error's traceback, `MAX_TRACEBACK_BYTES` of UTF-8 at most: files, source, and the error's text.

    No values of variables, so nothing of the record but what the error's own text says of it. Never raises.
    """
    kept: deque[bytes] = deque()
    size = 0
    for part in reversed(_parts(error)):
        encoded = part.encode("utf-8", "replace")
        if len(encoded) > _PART_BYTES:
            encoded = encoded[: _PART_BYTES - 4].decode("utf-8", "ignore").encode() + "…\n".encode()
        size += len(encoded)
        if size > MAX_TRACEBACK_BYTES - 4:
            kept.appendleft("…\n".encode())
            break
        kept.appendleft(encoded)
    return b"".join(kept).decode()


def _parts(error: Exception) -> list[str]:
    try:
        told = traceback.TracebackException(
            type(error), error, _theirs(error.__traceback__), limit=-_CALLS, compact=True
        )
        return list(told.format())
    except Exception as broken:  # noqa: BLE001 - whatever an error of the application does where it is looked at
        return [f"(its traceback cannot be had: {kind_of(broken)})\n"]


def _theirs(found: TracebackType | None) -> TracebackType | None:
    """Without the calls of ours that lead to the handler; all of them, where there is nothing else."""
    inner = found
    while inner is not None and str(inner.tb_frame.f_globals.get("__name__", "")).startswith(_OURS):
        inner = inner.tb_next
    return inner or found
