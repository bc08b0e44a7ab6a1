"""Values between the client and the rest: a delivery, a verdict, a place, and what is asked. No I/O."""

from __future__ import annotations

import zlib
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from holdfast.adapters.rocketmq.remoting import Malformed
from holdfast.adapters.rocketmq.remoting.messages import MOST_BODY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.timing import Deadline


_GZIP: Final = b"\x1f\x8b"


class Delivery(NamedTuple):
    """One delivery of a message."""

    topic: str
    #: UNIQ_KEY: the same in each delivery of a message, and in each copy that a producer's retry has stored.
    message_id: str
    #: The receipt: what an acknowledgement, a renewal and a return name. Each renewal gives another.
    receipt: str
    #: The proxy that delivered it, as the client has it.
    endpoints: Any
    body: bytes
    #: The message group (FIFO), or the message's keys.
    key: bytes | None
    headers: Sequence[tuple[str, bytes]]
    #: When the producer made it, in milliseconds since 1970.
    born_ms: int
    #: 1 = the first.
    attempt: int
    #: Why it cannot be read: its body is what there is of it.
    fault: Exception | None = None
    #: The body is as its producer has compressed it.
    packed: bool = False
    #: The checksum of the body as it came: another message may have the same name.
    crc: int = 0

    @property
    def name(self) -> tuple[str, str, int]:
        """The name that tells messages apart."""
        return self.topic, self.message_id, self.crc

    def unpacked(self) -> Delivery:
        """Return the delivery with its body as it was before its producer compressed it; or with a `fault`, and the
        body as it came."""
        if not self.packed or self.fault is not None:
            return self
        try:
            return self._replace(body=_unpacked(self.body), packed=False)
        except Malformed as error:
            return self._replace(fault=error)


class Verdict(Enum):
    """The broker's answer about one delivery."""

    DONE = "done"
    OVER = "over"  #: its lease had ended: the message comes again, or is done by another delivery
    UNKNOWN = "unknown"  #: no answer, or one that says nothing about it: it may have been done


class PollTarget(NamedTuple):
    """Where one poll looks: all queues of a topic on one broker."""

    topic: str
    broker: str


class Asks(Protocol):
    """Requests to the broker about deliveries. Never blocks; the answers come on another thread."""

    def begin_acknowledge(self, deliveries: Sequence[Delivery], answer: Callable[[Sequence[Verdict]], None]) -> None:
        """Deliveries of one topic and proxy. The answer has a verdict for each."""
        ...

    def begin_change(self, delivery: Delivery, hidden_s: int, answer: Callable[[Verdict, str], None]) -> None:
        """Hide it for so long from now on. The answer has the new receipt, where it is done."""
        ...


def _unpacked(body: bytes) -> bytes:
    """By zlib, or by gzip, which may be several parts. Raises Malformed: it is neither, or would grow too large."""
    parts: list[bytes] = []
    left, rest = MOST_BODY_BYTES, body
    while rest or not parts:
        reader = zlib.decompressobj(zlib.MAX_WBITS | 32)  # either header
        try:
            parts.append(reader.decompress(rest, left + 1))
        except zlib.error as error:
            raise Malformed(f"the body is not compressed by zlib or gzip, as the proxy says: {error}") from error
        left -= len(parts[-1])
        if left < 0:
            raise Malformed(f"the body would grow beyond {MOST_BODY_BYTES} bytes")
        if not reader.eof:
            raise Malformed("the compressed body is damaged or cut")
        rest = reader.unused_data.lstrip(b"\0") if body.startswith(_GZIP) else b""
    return parts[0] if len(parts) == 1 else b"".join(parts)


class Proxy(Asks, Protocol):
    """A consumer's client, as a source needs it. `open`, `renew`, `receive` and `close` block. Any thread."""

    def open(self, deadline: Deadline) -> None:
        """Connect, and see that the topics are there. Raises SourceError."""
        ...

    def renew(self) -> None:
        """Another connection instead of the one that there is. Raises SourceError: then that one stays."""
        ...

    def places(self) -> Sequence[PollTarget]:
        """Where to poll, as far as known. Raises SourceError."""
        ...

    def receive(self, place: PollTarget, at_most: int) -> Sequence[Delivery]:
        """Poll for a while, unless there is something. Raises SourceError."""
        ...

    def close(self) -> None:
        """End it: polls under way end at once."""
        ...
