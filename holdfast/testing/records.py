"""Records for tests of handlers, without a broker: `handle(make_record({"order_id": 17}))`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.records import Partition, Record

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True)
class MadeFence:
    """The fence of a record from `make_record`. A test may change it while its handler runs."""

    epoch: int = 1
    session: str = "test"
    cancelled: bool = False

    def overdue(self, record: Record) -> bool:  # noqa: ARG002 - as of `Fence`
        """Always False: no timeout watches a handler that a test calls. Set `cancelled` instead."""
        return False


def make_record(
    value: object = None,
    *,
    topic: str = "test",
    key: str | bytes | None = None,
    headers: Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]] = (),
    partition: int = 0,
    offset: int = 0,
    timestamp_ms: int = -1,
    fence: MadeFence | None = None,
) -> Record:
    """A record as a handler gets it.

    Args:
        value: bytes stay as they are; text becomes UTF-8; None is a tombstone; any other value becomes JSON.
        topic: the topic that it was read from.
        key: text becomes UTF-8.
        headers: a mapping, or pairs if a name occurs more than once; text becomes UTF-8.
        partition: the number of the partition.
        offset: in the partition.
        timestamp_ms: milliseconds since 1970; -1 = not known.
        fence: `MadeFence(cancelled=True)` for a record whose partition was lost.
    """
    body = value if value is None or isinstance(value, (str, bytes)) else json.dumps(value, ensure_ascii=False)
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return Record(
        Partition(topic, partition),
        offset,
        _bytes(key),
        _bytes(body),
        tuple((name, _bytes(each)) for name, each in pairs),
        timestamp_ms,
        fence or MadeFence(),
    )


def _bytes(said: str | bytes | None) -> bytes | None:
    return said.encode() if isinstance(said, str) else said
