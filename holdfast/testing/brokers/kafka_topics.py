"""KafkaTopics: Kafka's topics, their groups' port, and the events that are due later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from holdfast.runtime import MACHINE
from holdfast.testing.brokers.agenda import Agenda
from holdfast.testing.brokers.logs import Topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.records import Partition
    from holdfast.runtime import Runtime
    from holdfast.testing.brokers.agenda import Line
    from holdfast.testing.brokers.watcher import Watcher

T = TypeVar("T")


class Coordinated(Protocol):
    """A group, as its broker sees it. All calls are made with the broker's lock."""

    def next_due(self) -> float | None:
        """When the next session or round ends; None = never."""
        ...

    def expire(self, now: float) -> None:
        """Remove members whose session has ended."""
        ...

    def balance(self) -> None:
        """Plan the target assignment."""
        ...

    def grew(self, partition: Partition) -> None:
        """Wake the members that read this partition."""
        ...

    def forget(self, topic: str) -> None:
        """Drop the committed offsets of a deleted topic."""
        ...


class KafkaTopics(Topics):
    """A broker without the making of groups, which `MemoryBroker` adds. Any thread.

    Args:
        runtime: of the machine that it runs on. In a simulated world: of a process that is not preempted.
        topics: topic -> number of partitions.
    """

    def __init__(self, runtime: Runtime = MACHINE, /, **topics: int) -> None:
        super().__init__(runtime)
        self.watchers: list[Watcher] = []
        self.groups: dict[str, Coordinated] = {}
        self._agenda = Agenda()
        #: The broker's time up to which all events were run.
        self.time = runtime.now()
        for topic, partitions in topics.items():
            self.create(topic, partitions)

    # ---- time
    def settle(self) -> float:
        """Run all events that are due, in the order of time. Returns: now. Called before each look at the broker,
        without the lock, since reading the clock may wait."""
        now = self.runtime.now()
        with self.changed:
            while (due := self.next_due()) is not None and due <= now:
                self.time = max(self.time, due)
                if self._agenda.next == due:
                    self._agenda.do_next()
                else:
                    for group in self.groups.values():
                        group.expire(due)
            now = self.time = max(self.time, now)
        return now

    def next_due(self) -> float | None:
        """The time of the next event; None = there is none. Called with the lock."""
        soonest = self._agenda.next
        for group in self.groups.values():
            due = group.next_due()
            if due is not None and (soonest is None or due < soonest):
                soonest = due
        return soonest

    def after(self, now: float, seconds: float, call: Callable[[], None]) -> None:
        """Run this call `seconds` after `now`; at once, if that is 0. Called with the lock."""
        if seconds <= 0:
            call()
        else:
            self._agenda.add(now + seconds, call)

    def send(self, line: Line, now: float, apply: Callable[[], T], answered: Callable[[T], None]) -> None:
        """Send a request: `apply` runs when it arrives, `answered` when its answer is back. Called with the lock."""
        if not line.hears:
            return
        arrives = line.arrived = max(now + line.delay_s, line.arrived)

        def arrive() -> None:
            reply = apply()
            if line.speaks:
                self.after(arrives, line.delay_s, lambda: answered(reply))

        self.after(now, arrives - now, arrive)

    # ---- changes
    def _grew(self, partition: Partition) -> None:
        for group in self.groups.values():
            group.grew(partition)
        self.changed.notify_all()

    def _topics_changed(self) -> None:
        for group in self.groups.values():
            group.balance()
        self.changed.notify_all()

    def _forgotten(self, topic: str) -> None:
        for group in self.groups.values():
            group.forget(topic)
