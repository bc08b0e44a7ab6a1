"""The values that the engine, the stores and the adapters exchange: frozen, with hardly any behaviour."""

from __future__ import annotations

import json
from itertools import chain
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, overload

from holdfast.errors import NotJson, RecordUnreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


class Partition(NamedTuple):
    """A partition of a topic. In RocketMQ it is a queue, and `broker` distinguishes queues of the same number."""

    topic: str
    number: int
    broker: str = ""

    def __str__(self) -> str:
        return f"{self.topic}-{self.broker}-{self.number}" if self.broker else f"{self.topic}-{self.number}"


class Fence(Protocol):
    """A fence for sinks that can compare numbers: a sink that keeps the highest `epoch` of each partition and refuses
    lower ones takes no write of a former owner. Any thread."""

    @property
    def epoch(self) -> int:
        """Rises at every change of ownership. A number to compare, not a count: if the store starts empty (another
        namespace, a topic that was created again, lost data), it still rises, as long as the store's clock does. 0: no
        fence: `claims=None`, `store_down="open"` while the store does not answer, and sources that own no partitions.
        """
        ...

    @property
    def session(self) -> str:
        """The id of the owner's session: each start of a process has its own."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether this ownership has ended. Then stop when you can, by raising (see `Record.cancelled`)."""
        ...

    def overdue(self, record: Record) -> bool:
        """Whether the handler has had this record for longer than its timeout. Then stop when you can."""
        ...


class _Fields(NamedTuple):
    """The fields of a record; for `tuple.__new__`, in this order."""

    partition: Partition
    #: Position in the partition's log. For leased sources, a number that the source chooses, unique in its partition.
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    #: Milliseconds since 1970, as the broker or the producer set it; -1: not known.
    timestamp_ms: int
    fence: Fence


class Record(_Fields):
    """One message: partition, offset, key, value, headers, timestamp_ms, fence. Immutable; any thread.

    A NamedTuple: one is created for every message, at a fifth of a frozen dataclass' cost.
    """

    #: The result of `json()`. Stored beside the tuple: a record that is not decoded pays 8 bytes for it.
    _decoded: Any

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.partition.topic

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: this process no longer owns the record, or the handler has run for longer
        than its timeout and is about to be given up. Stop when you can, and stop by raising.

        A handler that returns says that its work is done, and that still counts: after a hand-over the new owner waits
        for a handler that outlived the drain, and then skips the record. Any thread.
        """
        return self.fence.cancelled or self.fence.overdue(self)

    @property
    def size_bytes(self) -> int:
        """Bytes of key, value and headers, as `max_in_flight_bytes` counts them: 100 are added for each header."""
        return len(self.key or b"") + len(self.value or b"") + (size_of_headers(self.headers) if self.headers else 0)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - as a tuple's, but for names
        """Index like a tuple. Raises TypeError for a name: a record is no dictionary."""
        if isinstance(index, str):
            raise TypeError(f"a record has no fields: record.json()[{index!r}], or value=Order, which decodes it")
        return super().__getitem__(index)

    def json(self) -> Any:  # noqa: ANN401 - whatever the producer has written
        """The value, decoded from JSON at the first call and kept: later calls, and `key="order_id"`, share it.

        A change to the returned object is seen by the next attempt: change a copy.

        Raises:
            NotJson: the record has no value (a tombstone), or its value is not JSON. NotJson is `Unretriable`: in a
                handler, the record becomes a dead letter or the app stops.
        """
        try:
            return self._decoded
        except AttributeError:
            self._decoded = decoded = json_of(self)
            return decoded

    def text(self, encoding: str = "utf-8") -> str:
        """The value as text.

        Raises:
            RecordUnreadable: the record has no value (a tombstone), or its value is no text in this encoding. It is
                `Unretriable`.
        """
        if self.value is None:
            raise RecordUnreadable(
                f"the record at {place_of(self)} has no value (a tombstone): look at record.value first"
            )
        try:
            return self.value.decode(encoding)
        except UnicodeDecodeError as error:
            raise RecordUnreadable(
                f"the value of the record at {place_of(self)} is no {encoding}: give another encoding, or decode "
                "record.value"
            ) from error

    @overload
    def header(self, name: str) -> bytes | None: ...

    @overload
    def header(self, name: str, kind: Callable[[bytes], T]) -> T | None: ...

    def header(self, name: str, kind: Callable[[bytes], Any] | None = None) -> Any:
        """The last header of this name (Kafka allows several), or None.

        Args:
            name: the header's name.
            kind: converts its bytes: `str` (UTF-8), `int` and `float` (decimal text), or a function of bytes. None:
                the bytes as they are.

        Raises:
            RecordUnreadable: the header cannot be converted. It is `Unretriable`.
        """
        found = self._last(name)
        if kind is None or found is None:
            return found
        try:
            return found.decode() if kind is str else kind(found)
        except ValueError as error:
            raise RecordUnreadable(
                f"the header {name!r} of the record at {place_of(self)} is no {getattr(kind, '__name__', kind)}: let "
                "the producer set it so, or read the bytes by record.header(name)"
            ) from (None if kind in (int, float) else error)  # int's and float's error would show the header's value

    def _last(self, name: str) -> bytes | None:
        last: Callable[[str], bytes | None] | None = getattr(self.headers, "last", None)
        if last is not None:  # headers that are decoded lazily find one without decoding all
            return last(name)
        for key, value in reversed(self.headers):
            if key == name:
                return value
        return None


_KEY, _VALUE, _HEADERS, _SIZE = attrgetter("key"), attrgetter("value"), attrgetter("headers"), attrgetter("size_bytes")
_FIRST, _SECOND = itemgetter(0), itemgetter(1)
#: The weight of Python's objects for one header: thousands of short headers take fifty times their bytes on the wire.
_HEADER_BYTES = 100


def size_of_headers(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """About the bytes that headers take in memory."""
    own: int | None = getattr(headers, "size_bytes", None)
    if own is not None:  # headers that are decoded lazily
        return own
    names, values = map(_FIRST, headers), filter(None, map(_SECOND, headers))
    return len(headers) * _HEADER_BYTES + sum(map(len, names)) + sum(map(len, values))


def size_of(records: Sequence[Record]) -> int:
    """The sum of their `size_bytes`, without a Python call for each: every record passes here."""
    if type(records[0]) is not Record:  # an own loop's messages: they know their size, and a key may be of any type
        return sum(map(_SIZE, records))
    size = sum(map(len, filter(None, map(_KEY, records)))) + sum(map(len, filter(None, map(_VALUE, records))))
    headers = list(filter(None, map(_HEADERS, records)))
    if headers and hasattr(headers[0], "size_bytes"):  # all records of a source have the same kind of headers
        known: int = sum(map(_SIZE, headers))
        return size + known
    return size + size_of_headers(list(chain.from_iterable(headers))) if headers else size


def json_of(record: Record) -> Any:  # noqa: ANN401 - as of `Record.json`
    """Decode as `record.json()` does, without keeping the result. Raises NotJson."""
    if record.value is None:
        raise NotJson(f"the record at {place_of(record)} has no value (a tombstone): look at record.value first")
    try:
        return json.loads(record.value)
    except (ValueError, RecursionError) as error:
        raise NotJson(f"the value of the record at {place_of(record)} is not JSON: decode record.value") from error


def place_of(record: Record) -> str:
    """Topic, partition and offset in words, for messages. Nothing of the record's content."""
    return f"{record.topic}, partition {record.partition.number}, offset {record.offset}"
