"""Failures of the application's functions in the log, with a traceback for the first of each kind, and in letters, with
a bounded one."""

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

#: The longest traceback in a letter, in bytes of UTF-8: enough for about twenty calls. RocketMQ has 32 KiB for all
#: properties of a message, and a traceback must not push a Kafka record over its topic's limit.
MAX_TRACEBACK_BYTES = 4096
#: How many of the innermost calls are shown, and the most bytes of one part: a line of source, or the error's text.
_CALLS = 20
_PART_BYTES = 1024
#: Kinds that are counted apart. It is bounded, since a handler may create new error classes without end.
_KINDS = 200
_OURS = "holdfast.plugin."


class Failures:
    """Logs failures of handlers, hooks and observers. One thread."""

    def __init__(self) -> None:
        #: (function, error type) -> (failures so far, the count at which the next line is logged).
        self._known: dict[tuple[str, type[BaseException]], tuple[int, int]] = {}

    def saw(self, handler: str, partition: Partition, offset: int, error: Exception) -> None:
        """Count a failed attempt at a record, as `failed` does."""
        self.failed(handler, f"{partition}@{offset}", error)

    def failed(self, name: str, on: object, error: BaseException) -> None:
        """Count a failed call. The first of its kind is logged with its traceback; the tenth, the hundredth and so on
        without.

        Args:
            name: the function's.
            on: what it was called with.
            error: raised by it.
        """
        kind = (name, type(error))
        if kind not in self._known and len(self._known) >= _KINDS:
            kind = (name, Exception)
        count, told_at = self._known.get(kind, (0, 1))
        count += 1
        if count >= told_at:
            if count == 1:
                _log.error(
                    "%s failed on %s with %s; further failures of this kind are logged without a traceback",
                    name,
                    on,
                    kind_of(error),
                    exc_info=_logged(error),
                )
            else:
                _log.error("%s has failed with %s %d times since the start", name, kind_of(error), count)
            told_at *= 10
        self._known[kind] = count, told_at


def _logged(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """The error for `exc_info`. If its text or a cause's is long (validators put the record into it): an error of the
    same name with the beginning of the text."""
    found: BaseException | None = error
    seen: list[BaseException] = []
    while found is not None and not any(found is each for each in seen) and len(seen) < _CALLS:
        seen.append(found)
        found = found.__cause__ or found.__context__
    if all(len(words_of(each)) <= _PART_BYTES for each in seen):
        return type(error), error, _theirs(error.__traceback__)
    text = words_of(error)
    shortened = text if len(text) <= _PART_BYTES else f"{text[:_PART_BYTES]}… ({len(text):,} characters)"
    kind = type(error)
    short = type(kind.__name__, (Exception,), {"__module__": kind.__module__, "__qualname__": kind.__qualname__})
    return short, short(shortened), _theirs(error.__traceback__)


def kind_of(error: BaseException) -> str:
    """The name of an error's type, with its module."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def words_of(error: BaseException, show: Callable[[BaseException], str] = str) -> str:
    """The text of an error, also of one whose `__str__` fails. Never raises."""
    try:
        return show(error)
    except Exception as broken:  # noqa: BLE001 - a __str__ of the application
        return f"(its text cannot be had: {kind_of(broken)})"


def summary_of(error: BaseException) -> str:
    """The type and the text of an error. Never raises."""
    return f"{type(error).__name__}: {words_of(error)}"


def traceback_of(error: Exception) -> str:
    """The end of an error's traceback, at most `MAX_TRACEBACK_BYTES` of UTF-8: files, source, and the error's text.

    Values of variables are left out: only the error's own text can show a part of the record. Never raises.
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
        summary = traceback.TracebackException(
            type(error), error, _theirs(error.__traceback__), limit=-_CALLS, compact=True
        )
        return list(summary.format())
    except Exception as broken:  # noqa: BLE001 - an application's error may raise anything when it is formatted
        return [f"(its traceback cannot be had: {kind_of(broken)})\n"]


def _theirs(found: TracebackType | None) -> TracebackType | None:
    """The traceback without holdfast's calls that lead to the handler; unchanged if it has only those."""
    inner = found
    while inner is not None and str(inner.tb_frame.f_globals.get("__name__", "")).startswith(_OURS):
        inner = inner.tb_next
    return inner or found
