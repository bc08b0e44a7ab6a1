"""The ground a field lies on: what scenarios need of a broker, whichever it is. `KafkaGround` and `RocketMQGround` have
it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.harness.group.ledger import Where
    from tests.harness.group.orders import Order


class Commit(NamedTuple):
    """A group's offset in a partition. `metadata` is Kafka's; RocketMQ has none."""

    offset: int
    metadata: str | None = None


#: Told once the broker has an order: where (None = it does not say), or why it will never have it. Any thread.
Placed = Callable[["Where | None", str | None], None]


class Sender(Protocol):
    """A producer. A retry of its own is no second order: idempotent, or with the identity of the first try."""

    def send(self, topic: str, order: Order, partition: int | None, placed: Placed) -> None:
        """Begin to send; without a partition the order's lane chooses it."""
        ...

    def flush(self, within_s: float) -> int:
        """Wait for what has no answer yet; returns how much of it there is still."""
        ...

    @property
    def refusals(self) -> Mapping[str, int]:
        """Why orders had to be sent again most often, and how often, as far as the sender knows."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Watch(Protocol):
    """Looks at the offsets of a group without being in it. One thread."""

    def committed(self, topic: str, partitions: Sequence[int]) -> Mapping[int, Commit] | None:
        """Partition -> commit; partitions without one are absent. None = could not be asked."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Ground(Protocol):
    """A broker, or several, as scenarios see it. Numbers of partitions are unique within a topic."""

    @property
    def address(self) -> str:
        """What members are told."""
        ...

    @property
    def log(self) -> str:
        """What the broker wrote last."""
        ...

    def create_topic(self, name: str, partitions: int) -> None:
        """Returns when it can be written."""
        ...

    def grow(self, topic: str, partitions: int) -> None:
        """Let it have so many partitions."""
        ...

    def partitions(self, topic: str) -> list[int]:
        """Its partitions, as they are now."""
        ...

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Partition -> offset that the next record will get."""
        ...

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Partition -> committed offset; partitions without one are absent."""
        ...

    def read(self, topic: str) -> Iterator[tuple[Where, Order]]:
        """All orders of a topic, without a group. Raises TimeoutError where its end is not reached."""
        ...

    def sender(self) -> Sender:
        """A new one; close it."""
        ...

    def watch(self, group: str) -> Watch:
        """A new one; close it."""
        ...

    def close(self) -> None:
        """End what this has opened; the servers stay."""
        ...
