"""Values between the client and the rest: a delivery, a verdict, a place, and what is asked. No I/O."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.timing import Deadline


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

    @property
    def name(self) -> tuple[str, str]:
        """The name that tells messages apart."""
        return self.topic, self.message_id


class Verdict(Enum):
    """The broker's answer about one delivery."""

    DONE = "done"
    OVER = "over"  #: its lease had ended: the message comes again, or is done by another delivery
    UNKNOWN = "unknown"  #: no answer, or one that says nothing about it: it may have been done


class Place(NamedTuple):
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


class Proxy(Asks, Protocol):
    """A consumer's client, as a source needs it. `open`, `renew`, `receive` and `close` block. Any thread."""

    def open(self, deadline: Deadline) -> None:
        """Connect, and see that the topics are there. Raises SourceError."""
        ...

    def renew(self) -> None:
        """Another connection instead of the one that there is. Raises SourceError: then that one stays."""
        ...

    def places(self) -> Sequence[Place]:
        """Where to poll, as far as known. Raises SourceError."""
        ...

    def receive(self, place: Place, at_most: int) -> Sequence[Delivery]:
        """Poll for a while, unless there is something. Raises SourceError."""
        ...

    def close(self) -> None:
        """End it: polls under way end at once."""
        ...
