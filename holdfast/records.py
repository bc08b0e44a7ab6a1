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
    """A partition of a topic (a queue, in RocketMQ, where `broker` tells several of one number apart)."""

    topic: str
    number: int
    broker: str = ""

    def __str__(self) -> str:
        return f"{self.topic}-{self.broker}-{self.number}" if self.broker else f"{self.topic}-{self.number}"


class Fence(Protocol):
    """A fence for sinks that can compare: a sink that remembers the highest `epoch` it saw of a partition and refuses
    lower ones cannot be written by a former owner."""

    @property
    def epoch(self) -> int:
        """Raised at every change of ownership. A number to compare, not a count: it goes on rising where the store
        begins anew (another namespace, a topic made again, lost data), as long as the store's clock does. 0 = there is
        no fence: `claims=None`, `store_down="open"` while the store is away, and sources that own no partitions."""
        ...

    @property
    def session(self) -> str:
        """The start of the process that owns the partition."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether that ownership has ended: stop when you can, by raising (see `Record.cancelled`)."""
        ...

    def overdue(self, record: Record) -> bool:
        """Whether the handler has had that record for longer than its timeout: stop when you can."""
        ...


class _Fields(NamedTuple):
    """The fields of a record; for `tuple.__new__`, in this order."""

    partition: Partition
    #: Position in the partition's log. Of leased sources: a number of the source's choice, unique in its partition.
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    #: Milliseconds since 1970 as the broker or the producer set it; -1 = not known.
    timestamp_ms: int
    fence: Fence


class Record(_Fields):
    """One message. A NamedTuple, because one is made for every message: a fifth of a frozen dataclass' cost."""

    #: What `json()` has decoded, beside the tuple: 8 bytes where nobody asks for it.
    _decoded: Any

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.partition.topic

    @property
    def cancelled(self) -> bool:
        """Stop when you can, and by raising: this process no longer owns the record, or the handler has run for longer
        than its timeout and is about to be given up.

        A handler that returns says that its work is done, and is taken at its word wherever that still counts: a new
        owner waits for who outlived the drain, and then skips the record.
        """
        return self.fence.cancelled or self.fence.overdue(self)

    @property
    def size_bytes(self) -> int:
        """Key, value and headers, as bounds count them: each header is 100 bytes more than its name and value."""
        return len(self.key or b"") + len(self.value or b"") + (size_of_headers(self.headers) if self.headers else 0)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - as a tuple's, but for names
        """Refuse names: a record is no dictionary. Raises TypeError."""
        if isinstance(index, str):
            raise TypeError(f"a record has no fields: record.json()[{index!r}], or value=Order, which decodes it")
        return super().__getitem__(index)

    def json(self) -> Any:  # noqa: ANN401 - whatever the producer has written
        """The value, decoded from JSON at the first call and kept: later calls, and `key="order_id"`, share it.

        So what is changed in it the next attempt sees as well: change a copy.

        Raises:
            NotJson: no value (a tombstone), or no JSON. It is `Unretriable`: the dead letter, or the app stops.
        """
        try:
            return self._decoded
        except AttributeError:
            self._decoded = decoded = json_of(self)
            return decoded

    def text(self, encoding: str = "utf-8") -> str:
        """The value as text.

        Raises:
            RecordUnreadable: no value (a tombstone), or no text in that encoding. It is `Unretriable`.
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
        """The last header of that name (Kafka allows several), or None.

        Args:
            name: of the header.
            kind: what to make of its bytes: `str` (UTF-8), `int` and `float` (as text writes them), or a function of
                bytes. None: the bytes as they are.

        Raises:
            RecordUnreadable: the header is there and is none of that kind. It is `Unretriable`.
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
            ) from (None if kind in (int, float) else error)  # their text shows what it holds

    def _last(self, name: str) -> bytes | None:
        last: Callable[[str], bytes | None] | None = getattr(self.headers, "last", None)
        if last is not None:  # headers that are read when they are looked at find one without reading all
            return last(name)
        for key, value in reversed(self.headers):
            if key == name:
                return value
        return None


_KEY, _VALUE, _HEADERS, _SIZE = attrgetter("key"), attrgetter("value"), attrgetter("headers"), attrgetter("size_bytes")
_FIRST, _SECOND = itemgetter(0), itemgetter(1)
#: Python's objects for a header: thousands of short ones would weigh fifty times what they are on the wire.
_HEADER_BYTES = 100


def size_of_headers(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Weigh headers, about as they are in memory."""
    own: int | None = getattr(headers, "size_bytes", None)
    if own is not None:  # headers that are read when they are looked at
        return own
    names, values = map(_FIRST, headers), filter(None, map(_SECOND, headers))
    return len(headers) * _HEADER_BYTES + sum(map(len, names)) + sum(map(len, values))


def size_of(records: Sequence[Record]) -> int:
    """The sum of their `size_bytes`, without a call of Python's for each: that is asked of every record."""
    if type(records[0]) is not Record:  # a loop's messages know theirs, and their keys may be anything
        return sum(map(_SIZE, records))
    size = sum(map(len, filter(None, map(_KEY, records)))) + sum(map(len, filter(None, map(_VALUE, records))))
    headers = list(filter(None, map(_HEADERS, records)))
    if headers and hasattr(headers[0], "size_bytes"):  # one source has one kind
        known: int = sum(map(_SIZE, headers))
        return size + known
    return size + size_of_headers(list(chain.from_iterable(headers))) if headers else size


def json_of(record: Record) -> Any:  # noqa: ANN401 - as of `Record.json`
    """Decode as `record.json()` does, and keep nothing of it. Raises NotJson."""
    if record.value is None:
        raise NotJson(f"the record at {place_of(record)} has no value (a tombstone): look at record.value first")
    try:
        return json.loads(record.value)
    except (ValueError, RecursionError) as error:
        raise NotJson(f"the value of the record at {place_of(record)} is not JSON: decode record.value") from error


def place_of(record: Record) -> str:
    """Where it was read, in words; nothing of what it holds."""
    return f"{record.topic}, partition {record.partition.number}, offset {record.offset}"
