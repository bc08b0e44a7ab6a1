"""Values between the client and the rest: a delivery, a verdict, and what is asked. No I/O."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


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

    @property
    def name(self) -> tuple[str, str]:
        """What tells messages apart."""
        return self.topic, self.message_id


class Verdict(Enum):
    """What the broker says about one delivery."""

    DONE = "done"
    OVER = "over"  #: its lease had ended: the message comes again, or is done by another delivery
    UNKNOWN = "unknown"  #: no answer, or one that says nothing about it: it may have been done


class Asks(Protocol):
    """What is asked of the broker about deliveries. Never blocks; the answers come on another thread."""

    def begin_acknowledge(self, deliveries: Sequence[Delivery], answer: Callable[[Sequence[Verdict]], None]) -> None:
        """Deliveries of one topic and proxy. The answer has a verdict for each."""
        ...

    def begin_change(self, delivery: Delivery, hidden_s: int, answer: Callable[[Verdict, str], None]) -> None:
        """Hide it for so long from now on. The answer has the new receipt, where it is done."""
        ...
