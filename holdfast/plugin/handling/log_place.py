"""LogPlace: whatever a handler logs says which record it was about."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator, Mapping

    from holdfast.plugin.handling.handler_call import HandlerCall

#: Of the call that this thread or task is in: one for all filters, since `logging.config` makes them by themselves.
_FIELDS: ContextVar[Mapping[str, object]] = ContextVar("holdfast_fields")
_NAMES = ("topic", "partition", "offset", "key", "handler", "attempt", "records")


class LogPlace:
    """A middleware and a filter of `logging`: log records get the place of the Kafka (or RocketMQ) record.

    `app.use(LogPlace())`, and `addFilter(LogPlace())` at each handler of `logging` that is to write it: two objects or
    one. Log records have `topic`, `partition`, `offset`, `key` (the business key), `handler`, `attempt`, and `place`,
    such as `orders-3@4711`; of a batch, those of its first record, and how many `records` it has. Where there is no
    record, they are None, and `place` is `-`. What a log record has by such a name already stays as it is.

    Any thread or task. A thread that a handler starts does not know the place, but for `asyncio.to_thread`.
    """

    def __call__(self, call: HandlerCall) -> Iterator[None]:
        """Be the middleware."""
        token = _FIELDS.set(call.fields)
        try:
            yield
        finally:
            _FIELDS.reset(token)

    def filter(self, record: logging.LogRecord) -> bool:
        """Be the filter. Returns: True, always."""
        fields = _FIELDS.get(None)
        for name in _NAMES:
            if not hasattr(record, name):
                setattr(record, name, None if fields is None else fields.get(name))
        if not hasattr(record, "place"):
            record.place = "-" if fields is None else f"{fields['topic']}-{fields['partition']}@{fields['offset']}"
        return True
