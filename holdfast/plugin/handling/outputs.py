"""Outputs: what a handler writes to topics, kept as values until a transaction of the source writes them.

A handler runs in no transaction: what it sends is a value beside its record. A call that fails leaves nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from holdfast.dedup.not_run import is_coroutine
from holdfast.errors import StateError, Unretriable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.records import Record

#: About what a record costs beside its key and value, and a header beside its name and value.
_RECORD_BYTES, _HEADER_BYTES = 100, 20


class Output(NamedTuple):
    """One record to be written."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        size = _RECORD_BYTES + len(self.key or b"") + len(self.value or b"")
        if self.headers:
            size += sum(len(name) + len(value or b"") + _HEADER_BYTES for name, value in self.headers)
        return size


class Outputs:
    """The outputs of one call of a handler: its keyword-only parameter `out: Outputs`, if its source has transactions.

    `send` only keeps the records. They are written when the handler has returned, in one transaction with the offset of
    the record that they were made of; if the handler raises, none is written. For the handler's own thread or
    task, until it returns. A test of a handler can give `Outputs()` and look at `sent`.
    """

    __slots__ = ("_closed", "sent")

    def __init__(self) -> None:
        #: In the order in which they were sent.
        self.sent: list[Output] = []
        self._closed = False

    def send(
        self,
        topic: str,
        *,
        key: bytes | str | None = None,
        value: bytes | str | None = None,
        headers: Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]] = (),
    ) -> None:
        """Keep a record for that topic. Text is written as UTF-8. Waits for nothing.

        Raises:
            Unretriable: an argument has a wrong type.
            StateError: the handler has returned.
        """
        if self._closed:
            raise StateError("out.send() after the handler has returned: what it sends then belongs to no record")
        if type(topic) is not str or not topic:
            raise Unretriable(f"out.send({topic!r}): name a topic")
        if type(key) is not bytes:
            key = _bytes_of("key", key)
        if type(value) is not bytes:
            value = _bytes_of("value", value)
        pairs = _headers(headers) if headers else ()
        self.sent.append(Output(topic, key, value, pairs))

    def close(self) -> None:
        """Refuse further records: the call has ended."""
        self._closed = True


def _headers(
    headers: Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]],
) -> Sequence[tuple[str, bytes | None]]:
    return [_header(*each) for each in (headers.items() if isinstance(headers, Mapping) else headers)]


def _header(name: str, value: bytes | str | None) -> tuple[str, bytes | None]:
    if type(name) is not str:
        raise Unretriable(f"out.send: the header {name!r} has no text as its name")
    return name, _bytes_of(f"the header {name}", value)


def _bytes_of(what: str, value: bytes | str | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise Unretriable(f"out.send: {what} is a {type(value).__name__}: give bytes, text or None")


_CURRENT: ContextVar[Outputs] = ContextVar("the outputs of the call that runs")


def current_outputs() -> Outputs:
    """The outputs of the call in which this thread or task runs. Raises LookupError: there is none."""
    return _CURRENT.get()


def producing(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make a function that calls another one with a record or a list of records, and hands over what it has sent to the
    ownership of its records when it has returned."""

    @functools.wraps(call)
    def called(given: Any) -> Any:  # noqa: ANN401 - a record, or a list of them
        with _Collecting(given) as outputs:
            returned = call(given)
            outputs.hand_over()
        return returned

    @functools.wraps(call)
    async def called_async(given: Any) -> Any:  # noqa: ANN401 - as above
        with _Collecting(given) as outputs:
            returned = await call(given)
            outputs.hand_over()
        return returned

    return called_async if is_coroutine(call) else called


class _Collecting:
    """One call's outputs, from its begin to its end."""

    __slots__ = ("_offsets", "_outputs", "_owner", "_token")

    def __init__(self, given: Any) -> None:  # noqa: ANN401 - as above
        records: Sequence[Record] = given if isinstance(given, list) else (given,)
        self._owner: Any = records[0].fence  # the ownership under which they came
        self._offsets = [record.offset for record in records]
        self._outputs = Outputs()

    def __enter__(self) -> Self:
        self._token = _CURRENT.set(self._outputs)
        self._owner.made.put(self._offsets, ())  # what an attempt before has made that failed in a middleware
        return self

    def hand_over(self) -> None:
        """The call has ended well."""
        self._outputs.close()
        self._owner.made.put(self._offsets, self._outputs.sent)

    def __exit__(self, *_: object) -> None:
        self._outputs.close()
        with suppress(ValueError):  # a task that the event loop closes at its end, in another context
            _CURRENT.reset(self._token)
