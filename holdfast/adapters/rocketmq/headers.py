"""Converts between a record's headers, which are bytes, and a message's properties, which are text. Pure.

Headers are all of a message's properties, KEYS, TAGS and UNIQ_KEY among them, so that a forwarded message is the same.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, overload

from holdfast.adapters.rocketmq.remoting.messages import UNIQUE_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: The prefix for a property whose value is base64, because it is no text or has the bytes 1 or 2 in it.
BASE64 = "holdfast-base64-"
_BASE64 = BASE64.encode()
#: If UNIQ_KEY occurs several times, the first is the message's own: brokers (4.9.7) append the properties of a batch to
#: those of each message, and Java clients give the batch a key too. For other properties the last counts, as in Java.
_UNIQUE_KEY = UNIQUE_KEY.encode()
_NEXT_UNIQUE_KEY = b"\x02" + _UNIQUE_KEY + b"\x01"

_SEPARATORS = re.compile("[\x01\x02]")

# Properties of one stored copy of a message. A forwarded message does not get them: a letter with DELAY would be
# delayed, one with RETRY_TOPIC would be taken for a retry. From MessageConst of 5.5.0.
_OF_ONE_STORING = """
    WAIT DELAY RETRY_TOPIC ORIGIN_GROUP REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID
    ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME TRANS_OFFSET MAX_RECONSUME_TIMES
    CONSUME_START_TIME INNER_NUM INNER_BASE DUP_INFO CHECK_IMMUNITY_TIME_IN_SECONDS TRAN_PREPARED_QUEUE_OFFSET
    __transactionId__ TRANSACTION_CHECK_TIMES CLUSTER POP_CK POP_CK_OFFSET 1ST_POP_TIME PROPERTY_FORWARD_QUEUE_ID
    REDIRECT INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS
    TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_OUT_MS TIMER_DEL_UNIQKEY TIMER_ROLL_LABEL TIMER_DELAY_LEVEL
    __CRC32# DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID
"""
_OF_THE_MESSAGE = """
    KEYS TAGS UNIQ_KEY EXTEND_UNIQ_INFO MSG_REGION TRACE_ON _SYS_MSG_PRIORITY_ INSTANCE_ID CORRELATION_ID
    REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME MSG_TYPE __SHARDINGKEY __LITE_TOPIC TRACE_CONTEXT __BORNHOST
    BORN_TIMESTAMP
"""
OF_ONE_STORING = frozenset(_OF_ONE_STORING.split())
#: Names that RocketMQ uses itself; users' properties must have other names.
RESERVED = OF_ONE_STORING | set(_OF_THE_MESSAGE.split())


#: The longest name that is cached, in bytes.
_SHORT = 128
#: The weight of Python's objects for a decoded property.
_PROPERTY_BYTES = 100


class Headers(Sequence[tuple[str, bytes]]):
    """The result of `headers_of`, decoded at the first access: most handlers never read headers. For properties without
    base64. Any thread."""

    __slots__ = ("_found", "_raw")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._found: tuple[tuple[str, bytes], ...] | None = None

    @property
    def size_bytes(self) -> int:
        """The size of the raw properties, and of the objects that decoding may create."""
        return len(self._raw) + _PROPERTY_BYTES * self._raw.count(b"\x02")

    def last(self, name: str) -> bytes | None:
        """The value of the last header of this name; None: there is none. Does not decode the others. For
        `Record.header`."""
        if name and name.isascii() and name.isprintable():
            return value_of(self._raw, name.encode())
        return next((value for each, value in reversed(self._all()) if each == name), None)

    def _all(self) -> tuple[tuple[str, bytes], ...]:
        found = self._found
        if found is None:  # two threads may decode at once; the results are equal
            found = self._found = headers_of(self._raw)
        return found

    def __len__(self) -> int:
        return len(self._all())

    def __bool__(self) -> bool:
        """Whether there are headers. A well-formed first property decides it, without decoding the others."""
        name_ends = self._raw.find(b"\x01")
        return (name_ends > 0 and self._raw.find(b"\x02", 0, name_ends) < 0) or len(self) > 0

    @overload
    def __getitem__(self, index: int) -> tuple[str, bytes]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[tuple[str, bytes], ...]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, bytes] | tuple[tuple[str, bytes], ...]:
        return self._all()[index]

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        return iter(self._all())

    def __reversed__(self) -> Iterator[tuple[str, bytes]]:
        return reversed(self._all())

    def __eq__(self, other: object) -> bool:
        return self._all() == (other._all() if isinstance(other, Headers) else other)

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return repr(self._all())


def value_of(raw: bytes, name: bytes) -> bytes | None:
    """The raw value of the last property of this name, not for base64 ones; None: there is none."""
    if name == _UNIQUE_KEY and raw.startswith(_UNIQUE_KEY + b"\x01"):
        at = -1
    else:
        at = raw.find(_NEXT_UNIQUE_KEY) if name == _UNIQUE_KEY else raw.rfind(b"\x02" + name + b"\x01")
    if at >= 0:
        at += len(name) + 2
    elif raw.startswith(name + b"\x01"):
        at = len(name) + 1
    else:
        return None
    end = raw.find(b"\x02", at)
    return raw[at:] if end < 0 else raw[at:end]


def headers_of(raw: bytes) -> tuple[tuple[str, bytes], ...]:
    """Decode the raw properties of a stored message into headers."""
    found = []
    is_known = False
    for each in raw.split(b"\x02"):
        name, separator, value = each.partition(b"\x01")
        if not separator or not name:
            continue
        if name == _UNIQUE_KEY:
            if is_known:
                continue
            is_known = True
        decoded = _name(name) if len(name) <= _SHORT else _decoded(name)
        found.append(_of_bytes(decoded, value) if name.startswith(_BASE64) else (decoded, value))
    return tuple(found)


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


@lru_cache(maxsize=1_000)
def _name(raw: bytes) -> str:
    """Decode a name. Cached: names are few, and decoding one costs as much as the rest of a header. Long names are not
    cached, since producers choose them."""
    return _decoded(raw)


def _of_bytes(name: str, value: bytes) -> tuple[str, bytes]:
    plain = name.removeprefix(BASE64)
    if plain == UNIQUE_KEY or plain in OF_ONE_STORING:  # always text; base64 here is forged
        return name, value
    try:
        return plain, base64.b64decode(value, validate=True)
    except binascii.Error:
        return name, value  # not written by holdfast: keep it as it is


def properties_of(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    """Encode headers as properties. The last header of a name counts; headers without a value are left out.

    Raises ValueError: a name that no property can have.
    """
    found: dict[str, str] = {}
    for name, value in headers:
        if not name or not fits(name):
            raise ValueError(f"{name!r} cannot be a property's name")
        found.pop(name, None)
        found.pop(BASE64 + name, None)
        if value is None:
            continue
        text = _text(value)
        if text is None:
            found[BASE64 + name] = base64.b64encode(value).decode()
        else:
            found[name] = text
    return found


def sent_on(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    """The properties that a message keeps when it is stored again, as a letter or by a replay. Raises ValueError."""
    return properties_of((name, value) for name, value in headers if name not in OF_ONE_STORING)


def fits(text: str) -> bool:
    """Whether a property's name or value can have this text: without the separators, bytes 1 and 2."""
    return _SEPARATORS.search(text) is None


def _text(value: bytes) -> str | None:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if fits(text) else None
