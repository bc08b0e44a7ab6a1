"""The messages of a pull one by one: one that cannot be read hides none of its neighbours, and stands for no others.

Producers choose the flags of a message: any of them can store one that says it is compressed, or several in one, and is
not.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from holdfast.adapters.rocketmq.remoting.errors import Malformed
from holdfast.adapters.rocketmq.remoting.messages import INNER_BATCH, StoredMessage, one, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SIZE: Final = struct.Struct(">i")
#: Up to its offset, which stands 20 bytes behind its beginning.
_PLACE: Final = struct.Struct(">12xi4xq")


def decode_each(payload: bytes, end: int) -> Iterator[StoredMessage]:
    """All messages of a pull's answer; the `body` of one that cannot be read raises Malformed, and its `raw_body` is
    what there is of it.

    Args:
        payload: the answer's body.
        end: the offset behind the last of them.

    Raises:
        Malformed: of what follows not even the lengths can be read. What came before is delivered.
        MissingExtraError: the compression of several messages in one needs a package that is not installed.
    """
    at = 0
    while at < len(payload):
        begin = at
        try:
            message, at = one(payload, at)
        except (Malformed, struct.error) as error:
            message, at = _broken(payload, begin, error)
        if message.sys_flag & INNER_BATCH == INNER_BATCH:
            yield from _inner(message, _offset(payload, at, end))
        else:
            yield message


def _broken(payload: bytes, at: int, error: Exception) -> tuple[StoredMessage, int]:
    """One whose parts do not fit, and where the next begins."""
    if at + _PLACE.size > len(payload):
        raise Malformed("the answer ends within a message") from error
    [size] = _SIZE.unpack_from(payload, at)
    if not _PLACE.size <= size <= len(payload) - at:
        raise Malformed("the length of a message does not fit, so that what follows cannot be found") from error
    queue_id, offset = _PLACE.unpack_from(payload, at)
    message = StoredMessage("", queue_id, offset, raw_body=payload[at : at + size])
    message.fault = error if isinstance(error, Malformed) else Malformed("a message's parts do not fit")
    return message, at + size


def _offset(payload: bytes, at: int, end: int) -> int:
    """Of the message there; the end where there is none."""
    if at + _PLACE.size > len(payload):
        return end
    _, offset = _PLACE.unpack_from(payload, at)
    return int(offset)


def _inner(batch: StoredMessage, following: int) -> Sequence[StoredMessage]:
    """Several messages in one have as many offsets. One that says so and has no room for them would hide those of
    others."""
    try:
        found = list(unwrapped(batch))
    except (Malformed, struct.error) as error:
        batch.fault = error if isinstance(error, Malformed) else Malformed("it says that it is several messages")
        return [batch]
    if 1 <= len(found) <= following - batch.offset:
        return found
    batch.fault = Malformed(
        f"it says that it is {len(found)} messages, and has the place of {following - batch.offset}"
    )
    return [batch]
