"""Queues of a RocketMQSource beside a client that a test makes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from holdfast.adapters.rocketmq.commits import Commits
from holdfast.adapters.rocketmq.inbox import Inbox
from holdfast.adapters.rocketmq.offsets import Offsets
from holdfast.adapters.rocketmq.queue import Shared
from holdfast.adapters.rocketmq.queues import Queues
from holdfast.adapters.rocketmq.remoting import Subscription
from holdfast.adapters.rocketmq.settings import PullSettings
from holdfast.dedup.memory_coordinator import MemoryCoordinator

if TYPE_CHECKING:
    from holdfast.adapters.rocketmq.inbox import Event

    E = TypeVar("E", bound=Event)


def commits_of(client: Any, group: str = "g") -> Commits:
    """The commits of a group at the brokers of this client."""
    inbox = Inbox()
    return Commits(client, group, inbox, Offsets(client, group, inbox.changed))


class Parts:
    """Queues, with what they are made of."""

    def __init__(self, client: Any, coordinator: MemoryCoordinator | None = None, **settings: Any) -> None:
        self.inbox = Inbox()
        self.shared = Shared(client, self.inbox, PullSettings(namesrv="a:1", group="g", **settings))
        topics = SimpleNamespace(subscription=lambda topic: Subscription(topic=topic), born_in=lambda named: named)
        commits = Commits(client, "g", self.inbox, Offsets(client, "g", self.inbox.changed))
        self.queues = Queues(self.shared, cast("Any", topics), commits, coordinator or MemoryCoordinator())
        self._seen: list[Event] = []

    def events(self, kind: type[E]) -> list[E]:
        """All events of a kind, in order."""
        while (event := self.inbox.take()) is not None:
            self._seen.append(event)
        return [event for event in self._seen if isinstance(event, kind)]
