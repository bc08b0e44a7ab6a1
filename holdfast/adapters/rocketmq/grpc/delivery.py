"""Values and protocols between the client and the source: Delivery, Verdict, PollTarget, Asks, Proxy. No I/O."""

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
    #: The receipt, which acknowledgements, renewals and returns name. Each renewal gives a new one.
    receipt: str
    #: The proxy that delivered it, as an object of the client.
    endpoints: Any
    body: bytes
    #: The message group (FIFO), or the message's keys.
    key: bytes | None
    headers: Sequence[tuple[str, bytes]]
    #: When the producer created it, in milliseconds since 1970.
    born_ms: int
    #: The number of this delivery; 1: the first.
    attempt: int
    #: Why it cannot be read; then `body` has the raw bytes.
    fault: Exception | None = None
    #: The body is still compressed.
    packed: bool = False
    #: The checksum of the body as received. It tells messages apart whose producer has used a UNIQ_KEY twice.
    crc: int = 0

    @property
    def name(self) -> tuple[str, str, int]:
        """The identity of the message, the same in all deliveries."""
        return self.topic, self.message_id, self.crc

    def unpacked(self) -> Delivery:
        """Return the delivery with its body decompressed; or with a `fault` and the raw body."""
        if not self.packed or self.fault is not None:
            return self
        try:
            return self._replace(body=_unpacked(self.body), packed=False)
        except Malformed as error:
            return self._replace(fault=error)


class Verdict(Enum):
    """The broker's answer to a request about one delivery."""

    DONE = "done"
    OVER = "over"  #: the lease had ended: the message is delivered again, or another delivery of it is done
    UNKNOWN = "unknown"  #: no answer, or an inconclusive one: the request may have taken effect


class PollTarget(NamedTuple):
    """The target of one poll: all queues of a topic on one broker."""

    topic: str
    broker: str


class Asks(Protocol):
    """Requests to the broker about deliveries. They never block; answers come on another thread."""

    def begin_acknowledge(self, deliveries: Sequence[Delivery], answer: Callable[[Sequence[Verdict]], None]) -> None:
        """Acknowledge deliveries of one topic and proxy. The answer has a verdict for each, in order."""
        ...

    def begin_change(self, delivery: Delivery, hidden_s: int, answer: Callable[[Verdict, str], None]) -> None:
        """Hide the message for `hidden_s` seconds from now on. With DONE, the answer has the new receipt."""
        ...


def _unpacked(body: bytes) -> bytes:
    """Decompress zlib, or gzip, which may have several parts. Raises Malformed: it is neither, or too large."""
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
    """The client of a consumer. `open`, `renew`, `receive` and `close` block. Any thread."""

    def open(self, deadline: Deadline) -> None:
        """Connect, and check that the topics exist. Raises SourceError."""
        ...

    def renew(self) -> None:
        """Replace the connection by a new one. Raises SourceError: then the old one stays."""
        ...

    def places(self) -> Sequence[PollTarget]:
        """The topics and brokers to poll, as far as known. Raises SourceError."""
        ...

    def receive(self, place: PollTarget, at_most: int) -> Sequence[Delivery]:
        """Poll: return as soon as there are messages, or after a while. Raises SourceError."""
        ...

    def end_poll(self, place: PollTarget) -> None:
        """End the poll of that place that is under way: `receive` raises SourceError. Does not wait."""
        ...

    def close(self) -> None:
        """Close; polls under way end at once."""
        ...
