"""EventLine: the log line of an event: its name, then `key=value`, for people and for machines."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import fields
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.printable import printable
from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Sequence


#: The most characters of one value: the text of a handler's error may have the record in it.
_LONGEST = 1_000


class EventLine:
    """The base of events: formats one as a log line."""

    __slots__ = ()
    #: The level at which the engine logs the event.
    level: ClassVar[int] = logging.WARNING
    #: The event is about one record. There may be thousands a second, so its lines are limited.
    of_a_record: ClassVar[bool] = False

    @classmethod
    def line_name(cls) -> str:
        """Return the words with which its line begins."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", cls.__name__).lower()

    def __str__(self) -> str:
        values = ((each.name, getattr(self, each.name)) for each in fields(self))  # type: ignore[arg-type]  # dataclasses
        return printable(
            " ".join(
                [
                    f"{self.line_name()}:",
                    *(f"{key}={_text(value)}" for key, value in values if value not in (None, (), {})),
                ]
            )
        )


def _text(value: Any) -> str:  # noqa: ANN401 - whatever a field holds
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, Partition):
        return str(value)
    if isinstance(value, tuple):
        return ranges_of(value)
    if isinstance(value, dict):
        return ",".join(f"{key}:{_text(each)}" for key, each in value.items())
    text = str(value)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}… ({len(text):,} characters)"
    # Quoted if necessary, as for a shell, and always one line.
    plain = text.isprintable()
    return json.dumps(text, ensure_ascii=not plain) if not plain or re.search(r"[\s=\"'\\]|^$", text) else text


def ranges_of(partitions: Sequence[Partition]) -> str:
    """Partitions in a short form, such as orders-[0-3,7], since a group may have hundreds."""
    parts = []
    for (topic, broker), each in groupby(sorted(partitions), key=lambda one: (one.topic, one.broker)):
        numbers = [one.number for one in each]
        runs = [list(run) for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])]
        spans = [f"{run[0][1]}-{run[-1][1]}" if len(run) > 1 else str(run[0][1]) for run in runs]
        parts.append(f"{topic}-{broker + '-' if broker else ''}[{','.join(spans)}]")
    return ",".join(parts)
