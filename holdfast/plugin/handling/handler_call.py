"""HandlerCall: one call of a handler, for middlewares, and for handlers that take it as a resource."""

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
    """One call of a handler: one attempt at a record or a batch. Frozen; in the thread or task of the handler."""

    #: The handler's name.
    handler: str
    #: The consumer group.
    group: str
    #: The records that the handler gets, in the same order; at least one.
    records: Sequence[Record]
    #: The business key of each record, as text (hexadecimal for bytes that are not UTF-8); None: claimed without one.
    keys: Sequence[str | None]
    #: Whether the handler gets a list.
    is_batch: bool
    #: 1: the first attempt since this process owns the partition. In a batch, the highest of its records.
    attempt: int

    @property
    def record(self) -> Record:
        """The record; in a batch, the first."""
        return self.records[0]

    @property
    def key(self) -> str | None:
        """The business key of that record."""
        return self.keys[0]

    @property
    def fields(self) -> dict[str, str | int | None]:
        """For logs and error reports: topic, partition, offset, key, handler, attempt; for a batch, those of its first
        record, and `records`, their number. The records' values are left out, except the key."""
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
    """The call in which this thread or task runs. Raises LookupError: there is none, or its app has no `noted`."""
    return _CURRENT.get()


def noted(call: HandlerCall) -> Iterator[None]:
    """The middleware that sets `current_call`."""
    token = _CURRENT.set(call)
    try:
        yield
    finally:
        with suppress(ValueError):  # the task has ended, and the generator is closed in another context
            _CURRENT.reset(token)
