"""LogPlace: log records of a handler have the topic, partition and offset of the record that it handles."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator, Mapping

    from holdfast.plugin.handling.handler_call import HandlerCall

#: `HandlerCall.fields` of the call in this thread or task. Global, since `logging.config` creates filters of its own.
_FIELDS: ContextVar[Mapping[str, object]] = ContextVar("holdfast_fields")
_NAMES = ("topic", "partition", "offset", "key", "handler", "attempt", "records")


class LogPlace:
    """A middleware and a filter of `logging`: log records get the position of the Kafka (or RocketMQ) record.

    Register both: `app.use(LogPlace())`, and `addFilter(LogPlace())` at each `logging` handler that writes it, with one
    object or two. Log records then have `topic`, `partition`, `offset`, `key` (the business key), `handler`, `attempt`,
    and `place`, such as `orders-3@4711`; for a batch, those of its first record, and `records`, their number. Outside
    of a handler they are None, and `place` is `-`. An attribute that a log record has already stays as it is.

    Any thread or task. A thread that a handler starts has no position, except one of `asyncio.to_thread`.
    """

    def __call__(self, call: HandlerCall) -> Iterator[None]:
        """The middleware: keep the call's fields while the handler runs."""
        token = _FIELDS.set(call.fields)
        try:
            yield
        finally:
            _FIELDS.reset(token)

    def filter(self, record: logging.LogRecord) -> bool:
        """The filter: add the fields to the log record. Returns True: it drops no log record."""
        fields = _FIELDS.get(None)
        for name in _NAMES:
            if not hasattr(record, name):
                setattr(record, name, None if fields is None else fields.get(name))
        if not hasattr(record, "place"):
            record.place = "-" if fields is None else f"{fields['topic']}-{fields['partition']}@{fields['offset']}"
        return True
