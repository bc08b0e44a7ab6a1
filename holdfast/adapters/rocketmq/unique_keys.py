"""UNIQ_KEY: the id that a producer gives to a message. It stays the same in the producer's retries and retry topics."""

from __future__ import annotations

import os
import secrets
import threading
import zlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.remoting.messages import UNIQUE_KEY
from holdfast.dedup.forks import after_fork
from holdfast.timing import wall_ms

if TYPE_CHECKING:
    from holdfast.records import Record

_SEQUENCE_BITS = 16
_MONTH_BEGINS = {"day": 1, "hour": 0, "minute": 0, "second": 0, "microsecond": 0}


class UniqueKeys:
    """Makes unique keys in the form of RocketMQ's own clients: 32 hexadecimal digits. Any thread.

    | bytes | RocketMQ's clients (MessageClientIDSetter) | here |
    |---|---|---|
    | 4 | an address of the machine | random |
    | 2 | process id | the same |
    | 4 | a hash of the class loader | random |
    | 4 | milliseconds since the month began, local time: tools find a message's time by them | the same |
    | 2 | a counter | the same |

    Containers may have equal addresses and process ids, so random bytes take their place; a forked child and a new
    month get new ones. Time and counter are one number that only rises, also if the clock is set back.
    """

    def __init__(self) -> None:
        self._renew()
        after_fork(self, UniqueKeys._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._prefix, self._last, self._began_ms, self._ends_ms = "", -1, 0, -1

    def next(self) -> str:
        """Make a key that no other process has made or will make."""
        now_ms = wall_ms()
        with self._lock:
            if now_ms >= self._ends_ms:
                self._begin_month(now_ms)
            self._last = max(self._last + 1, max(now_ms - self._began_ms, 0) << _SEQUENCE_BITS)
            return f"{self._prefix}{self._last:012X}"

    def _begin_month(self, now_ms: int) -> None:
        # Without a time zone, `timestamp` uses local time with that day's own offset, which daylight saving changes.
        month = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone().replace(tzinfo=None, **_MONTH_BEGINS)
        following = (month + timedelta(days=32)).replace(day=1)
        self._began_ms, self._ends_ms = (int(each.timestamp()) * 1000 for each in (month, following))
        made_of = secrets.token_bytes(4) + (os.getpid() & 0xFFFF).to_bytes(2) + secrets.token_bytes(4)
        self._prefix, self._last = made_of.hex().upper(), -1


def identity_of(unique_key: str, body: bytes) -> str:
    """The identity that all copies of one message share: its UNIQ_KEY, and the CRC-32 of the uncompressed body.

    Copies of one message have the same body. If two messages have the same UNIQ_KEY but different bodies, the producer
    has used the key twice, for example because it forwards messages with their properties. Without the CRC the second
    would be skipped as a copy.

    Args:
        unique_key: the message's UNIQ_KEY.
        body: the body as its producer had it, uncompressed.
    """
    return f"{unique_key}:{zlib.crc32(body):08x}"


def message_of(record: Record) -> str | None:
    """The identity of a record's message; None: it has no UNIQ_KEY. Keys that are not UTF-8 stay distinct."""
    found = record.header(UNIQUE_KEY)
    return identity_of(found.decode("utf-8", "backslashreplace"), record.value or b"") if found else None
