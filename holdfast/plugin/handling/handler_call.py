"""HandlerCall: one call of a handler, as a middleware sees it, and a handler that asks for it."""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerCall:
    """One call of a handler: one attempt at a record, or at a batch."""

    #: The handler's name.
    handler: str
    #: The consumer group.
    group: str
    #: Of what the handler gets, in that order; one or more.
    records: Sequence[Record]
    #: Of each record, the business key that it is claimed by, as text (hex digits of bytes that are no UTF-8); or None.
    keys: Sequence[str | None]
    #: Whether the handler gets a list.
    is_batch: bool
    #: 1 = the first since this process owns the partition. Of a batch, the highest of its records.
    attempt: int

    @property
    def record(self) -> Record:
        """The record; of a batch, the first."""
        return self.records[0]

    @property
    def key(self) -> str | None:
        """The business key of that record."""
        return self.keys[0]

    @property
    def fields(self) -> dict[str, str | int | None]:
        """For logs and error reports: topic, partition, offset, key, handler, attempt; of a batch, those of its first
        record, and how many records it has. Nothing of their values but that key."""
        place = self.record.partition
        return {
            "topic": place.topic,
            "partition": f"{place.broker}-{place.number}" if place.broker else place.number,
            "offset": self.record.offset,
            "key": self.key,
            "handler": self.handler,
            "attempt": self.attempt,
            **({"records": len(self.records)} if self.is_batch else {}),
        }


_CURRENT: ContextVar[HandlerCall] = ContextVar("the call of holdfast's that runs")


def current_call() -> HandlerCall:
    """The call that runs here. Raises LookupError: none does, or `noted` is no middleware of its app."""
    return _CURRENT.get()


def noted(call: HandlerCall) -> Iterator[None]:
    """A middleware, for `current_call`."""
    token = _CURRENT.set(call)
    try:
        yield
    finally:
        with suppress(ValueError):  # its task is gone, and it is closed somewhere else
            _CURRENT.reset(token)
