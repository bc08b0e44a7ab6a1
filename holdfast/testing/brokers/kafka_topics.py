"""Kafka's topics, what its groups are told of them, and the time that passes in between."""

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
    """A group as its broker keeps it. All with the broker's lock."""

    def next_due(self) -> float | None:
        """When something happens in it by itself; None = never."""
        ...

    def expire(self, now: float) -> None:
        """Remove members whose session has ended."""
        ...

    def balance(self) -> None:
        """Plan who is meant to have what."""
        ...

    def grew(self, partition: Partition) -> None:
        """Wake who reads there."""
        ...

    def forget(self, topic: str) -> None:
        """With a topic goes what is committed there."""
        ...


class KafkaTopics(Topics):
    """All of a broker but how it makes its groups. Any thread.

    Args:
        runtime: the machine that it runs on. In a simulated world a process of its own, which nobody overtakes.
        topics: by name, how many partitions each has.
    """

    def __init__(self, runtime: Runtime = MACHINE, /, **topics: int) -> None:
        super().__init__(runtime)
        self.watchers: list[Watcher] = []
        self.groups: dict[str, Coordinated] = {}
        self._agenda = Agenda()
        #: By the broker's clock, as far as everything due is done.
        self.time = runtime.now()
        for topic, partitions in topics.items():
            self.create(topic, partitions)

    # ---- time
    def settle(self) -> float:
        """Do what is due until now, in the order of time. Returns: now. Called without the lock, before each look: who
        asks for the time may have to wait."""
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
        """When something happens by itself; None = never. Called with the lock."""
        soonest = self._agenda.next
        for group in self.groups.values():
            due = group.next_due()
            if due is not None and (soonest is None or due < soonest):
                soonest = due
        return soonest

    def after(self, now: float, seconds: float, call: Callable[[], None]) -> None:
        """Do that then; at once, if that is now. Called with the lock."""
        if seconds <= 0:
            call()
        else:
            self._agenda.add(now + seconds, call)

    def send(self, line: Line, now: float, apply: Callable[[], T], answered: Callable[[T], None]) -> None:
        """A request on its way, and its answer on the way back. Called with the lock."""
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
