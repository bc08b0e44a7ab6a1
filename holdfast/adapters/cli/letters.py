"""A dead letter as its headers tell it, and which of them a person asks for. Pure; the headers are those of
`plugin.retrying.dead_letter`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.adapters.cli.output import of_bytes, shown, size, span
from holdfast.plugin.retrying.dead_letter import LEFT_OUT, PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLetter:
    """None = the header is missing, or not what it should be: other tools write to the topic too."""

    record: Record
    origin_topic: str | None
    origin_partition: int | None
    #: "" = of brokers that need no name for it (Kafka).
    origin_broker: str
    origin_offset: int | None
    handler: str | None
    group: str | None
    attempts: int | None
    error_type: str | None
    error_message: str | None
    traceback: str | None
    #: What of the record the letter lacks, since it was too large; None = nothing.
    left_out: str | None
    #: How large the record's value was, then.
    value_bytes: int | None
    #: When it failed, else when the letter was written; milliseconds since 1970.
    when_ms: int

    @classmethod
    def of(cls, record: Record) -> StoredLetter:
        """Read a record of a dead letter topic."""
        headers = dict(record.headers)  # the last of a name counts, as everywhere
        failed_at_ms = _number(headers, "failed-at-ms")
        # As `plugin.retrying.dead_letter` writes it: 3, or broker-a-3.
        broker, _, number = (_text(headers, "origin-partition") or "").rpartition("-")
        return cls(
            record=record,
            origin_topic=_text(headers, "origin-topic"),
            origin_partition=_as_number(number),
            origin_broker=broker,
            origin_offset=_number(headers, "origin-offset"),
            handler=_text(headers, "handler"),
            group=_text(headers, "group"),
            attempts=_number(headers, "attempts"),
            error_type=_text(headers, "error-type"),
            error_message=_text(headers, "error-message"),
            traceback=_text(headers, "traceback"),
            left_out=_text(headers, LEFT_OUT.removeprefix(PREFIX)),
            value_bytes=_number(headers, "value-bytes"),
            when_ms=record.timestamp_ms if failed_at_ms is None else failed_at_ms,
        )

    @property
    def origin(self) -> str | None:
        """Where the record was born, for people."""
        if self.origin_topic is None:
            return None
        place = _place(self.origin_broker, "?" if self.origin_partition is None else self.origin_partition)
        return f"{self.origin_topic}-{place}@{'?' if self.origin_offset is None else self.origin_offset}"

    def row(self, now_ms: int, *, values: bool) -> list[object]:
        """The letter's line in a table; see COLUMNS."""
        record = self.record
        cells: list[object] = [
            f"{_place(record.partition.broker, record.partition.number)}@{record.offset}",
            span((now_ms - self.when_ms) / 1000),
            shown(self.origin or "-", _ORIGIN_CHARS),
            shown(self.handler or "-"),
            self.attempts,
            shown(self.error_type or "-"),
            shown(self.error_message or "-", _MESSAGE_CHARS),
            "-" if record.key is None else shown(record.key.decode("utf-8", "backslashreplace")),
            size(len(record.value or b"")) if self.left_out is None else f"left out: {size(self.value_bytes or 0)}",
        ]
        if values:
            value = record.value
            cells.append("-" if value is None else shown(value.decode("utf-8", "backslashreplace"), 10_000))
        return cells

    def traceback_lines(self) -> list[str]:
        """A line that names the letter, and the lines of its traceback."""
        place = _place(self.record.partition.broker, self.record.partition.number)
        lines = (self.traceback or "(no traceback)").splitlines()
        return [f"{place}@{self.record.offset}", *(f"  {shown(line, 1_000)}" for line in lines)]

    def as_json(self, *, values: bool) -> dict[str, object]:
        """The letter for programs; the fields are those of docs/operations/tools.md."""
        record = self.record
        found: dict[str, object] = {
            "type": "letter",
            "topic": record.partition.topic,
            "partition": record.partition.number,
            "broker": record.partition.broker,
            "offset": record.offset,
            "failed_at_ms": self.when_ms,
            "origin_topic": self.origin_topic,
            "origin_partition": self.origin_partition,
            "origin_broker": self.origin_broker,
            "origin_offset": self.origin_offset,
            "handler": self.handler,
            "group": self.group,
            "attempts": self.attempts,
            "error_type": self.error_type,
            "error_message": self.error_message,
            "traceback": self.traceback,
            "left_out": self.left_out,
            "key": of_bytes(record.key),
            "value_bytes": len(record.value or b""),
        }
        if values:
            found["value"] = of_bytes(record.value)
        return found


_DIGITS = 18
#: What a table shows of an error's message, which may end with the remedy: `--json` has all of it.
_MESSAGE_CHARS = 300
#: A topic's 249 letters, a broker's name, a number and an offset.
_ORIGIN_CHARS = 400
COLUMNS = ("LETTER", "AGE", "ORIGIN", "HANDLER", "ATTEMPTS", "ERROR", "MESSAGE", "KEY", "SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which letters; None = all."""

    handler: str | None = None
    error_type: str | None = None
    #: Topics where they were born.
    origins: frozenset[str] | None = None
    since_ms: int | None = None

    def __call__(self, letter: StoredLetter) -> bool:
        """Whether this one."""
        return (
            (self.handler is None or letter.handler == self.handler)
            and (self.error_type is None or _is_type(letter.error_type, self.error_type))
            and (self.origins is None or letter.origin_topic in self.origins)
            and (self.since_ms is None or letter.when_ms >= self.since_ms)
        )


#: Kinds of errors that are told apart, and how much of a name: whoever may write to the topic makes them.
_KINDS, _KIND_CHARS = 100, 200
_OTHERS = "(other types)"


@dataclass(slots=True)
class Summary:
    """Letters by what went wrong: the types that were met first, and the others together."""

    by_error: Counter[str] = field(default_factory=Counter)
    oldest_ms: dict[str, int] = field(default_factory=dict)
    newest_ms: dict[str, int] = field(default_factory=dict)

    def add(self, letter: StoredLetter) -> None:
        """Count one."""
        kind = shown(letter.error_type or "(not told)", _KIND_CHARS)
        if kind not in self.by_error and len(self.by_error) >= _KINDS:
            kind = _OTHERS
        self.by_error[kind] += 1
        self.oldest_ms[kind] = min(letter.when_ms, self.oldest_ms.get(kind, letter.when_ms))
        self.newest_ms[kind] = max(letter.when_ms, self.newest_ms.get(kind, letter.when_ms))


def _is_type(found: str | None, wanted: str) -> bool:
    """PaymentError finds shop.errors.PaymentError too."""
    return found is not None and (found == wanted or found.endswith(f".{wanted}"))


def _place(broker: str, number: int | str) -> str:
    return f"{broker}-{number}" if broker else str(number)


def _text(said: Mapping[str, bytes | None], name: str) -> str | None:
    value = said.get(PREFIX + name)
    return None if value is None else value.decode("utf-8", "replace")


def _number(said: Mapping[str, bytes | None], name: str) -> int | None:
    return _as_number(_text(said, name) or "")


def _as_number(text: str) -> int | None:
    """Anybody may have written it: of more digits `int`, and what computes with it, would raise."""
    return int(text) if len(text) <= _DIGITS and text.isascii() and text.isdigit() else None
