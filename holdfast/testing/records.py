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
    """The fence of a record that was made: a test may change it while its handler runs."""

    epoch: int = 1
    session: str = "test"
    cancelled: bool = False

    def overdue(self, record: Record) -> bool:  # noqa: ARG002 - as of `Fence`
        """No timeout watches a test's handler; set `cancelled`."""
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
        value: bytes as they are; text as UTF-8; None is a tombstone; everything else is written as JSON.
        topic: and the rest of where it was read.
        key: text as UTF-8.
        headers: by name, or pairs where a name comes more than once; text as UTF-8.
        partition: the number.
        offset: in the partition.
        timestamp_ms: since 1970; -1 = not known.
        fence: `MadeFence(cancelled=True)`: the partition has gone.
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
