"""Topics: the queues that a group reads, by names, patterns and the name servers' routes.

A queue that its broker no longer lists is gone. If the broker or the topic itself is not listed, it may come back: a
restarted name server knows all of them only after 30 s, and forgets a broker that is down after 2 minutes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.names import (
    EVERYTHING,
    canonical,
    check_subscribed,
    matching,
    pop_retry_topics,
    popped_from,
    retry_topic,
    subscription_text,
)
from holdfast.adapters.rocketmq.remoting import Subscription, codes
from holdfast.errors import SourceError, UnknownTopic
from holdfast.timing import SYSTEM_CLOCK, wall_ms

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast.adapters.rocketmq.remoting import RemotingClient
    from holdfast.records import Partition
    from holdfast.timing import Deadline

#: A broker or topic is gone for good if name servers answer and do not list it for this long.
_GONE_S = 600.0


class Topics:
    """The subscription of one source, and its queues. One thread at a time."""

    def __init__(self, client: RemotingClient, group: str, expressions: Mapping[str, str]) -> None:
        self._client, self._group, self._retry = client, group, retry_topic(group)
        self._expressions = dict(expressions)
        self._version = wall_ms()
        self._names: list[str] = []
        self._patterns: list[str] = []
        self._found: set[str] = set()
        #: Queue -> the time since which name servers answer without it; None: they list it.
        self._queues: dict[Partition, float | None] = {}
        #: (topic, broker) without permission to read, in the newest routes.
        self.closed: frozenset[tuple[str, str]] = frozenset()
        #: Queues that are gone for good. The source clears the list once it has dropped its state of them.
        self.gone: list[Partition] = []

    def choose(self, topics: Collection[str]) -> None:
        """Set the names and patterns (^...). Raises SettingError: `subscriptions` names a topic without a handler."""
        check_subscribed("subscriptions", self._expressions, topics)
        self._names = [topic for topic in topics if not topic.startswith("^")]
        self._patterns = [topic for topic in topics if topic.startswith("^")]

    def reads(self, topic: str) -> bool:
        """Whether a handler names the topic, or a pattern matches it."""
        return topic in self._names or bool(matching([topic], self._patterns))

    def born_in(self, name: str) -> str | None:
        """The origin topic that a name means: a topic, as a retried message names it, or a POP retry topic. None: this
        source does not read that topic."""
        topic = popped_from(self._group, name) or name
        return topic if self.reads(topic) else None

    def brings_again(self, topic: str) -> bool:
        """Whether messages of this topic were tried before, and have another origin topic."""
        return topic == self._retry or (popped_from(self._group, topic) is not None and self.born_in(topic) is not None)

    @property
    def text(self) -> str:
        """The subscription as text: equal for members that subscribe to the same topics and tags."""
        return subscription_text([*self._names, *self._patterns], self._expressions)

    def subscription(self, topic: str) -> Subscription:
        """The subscription to one topic."""
        expression = canonical(self._expressions.get(topic, EVERYTHING))
        return Subscription(topic=topic, expression=expression, version=self._version)

    @property
    def subscriptions(self) -> list[Subscription]:
        """The subscriptions to all known topics, the retry topic among them."""
        return [self.subscription(topic) for topic in sorted({*self._names, *self._found, self._retry})]

    @property
    def queues(self) -> list[Partition]:
        """The queues as of the last look."""
        return sorted(self._queues)

    def look(self, deadline: Deadline, *, first: bool = False) -> list[Partition]:
        """Ask the name servers for the routes of all topics, with a request for each. `queues` has the answered ones,
        also if this raises. Raises SourceError; with `first`, UnknownTopic for all names that do not exist."""
        if self._patterns:
            self._found = matching(self.all_names(deadline), self._patterns)
        now = SYSTEM_CLOCK.now()
        # Retry topics last: the first error should be about a topic that the user has named.
        named = sorted({*self._names, *self._found})
        asked = [*named, self._retry, *(each for topic in named for each in pop_retry_topics(self._group, topic))]
        missing, trouble = list[UnknownTopic](), list[SourceError]()
        closed = set[tuple[str, str]]()
        for topic, route in self._client.routes_of(asked, deadline).items():
            if isinstance(route, UnknownTopic):
                # Brokers create retry topics when they need them. Other topics are deleted, or a restarted name server
                # does not know them yet.
                if first and topic in self._names:
                    missing.append(route)
                self._note(topic, (), (), now)
            elif isinstance(route, SourceError):
                trouble.append(route)
            else:
                closed.update((topic, each.broker) for each in route.queue_datas if not each.perm & codes.PERM_READ)
                self._note(topic, route.queues(read=True), set(route.brokers), now)
        self.closed = frozenset(closed)
        for topic in {queue.topic for queue in self._queues}.difference(asked):
            self._note(topic, (), (), now)  # matched by a pattern before, and no longer in the name servers' list
        if missing:
            raise missing[0] if len(missing) == 1 else UnknownTopic("; ".join(map(str, missing)))
        if trouble:
            raise trouble[0]
        return self.queues

    def _note(self, topic: str, listed: Collection[Partition], brokers: Collection[str], now: float) -> None:
        for queue in [queue for queue in self._queues if queue.topic == topic and queue not in listed]:
            since = self._queues[queue]
            if queue.broker in brokers:  # the broker has closed it, or has fewer queues now; it may come back
                del self._queues[queue]
            elif since is not None and now - since > _GONE_S:
                del self._queues[queue]
                self.gone.append(queue)
            elif since is None:
                self._queues[queue] = now
        self._queues.update(dict.fromkeys(listed))

    def all_names(self, deadline: Deadline) -> list[str]:
        """All topics that the name servers list. Raises SourceError."""
        answer = self._client.ask_name_server(codes.Request.GET_ALL_TOPICS, {}, deadline)
        try:
            return [str(topic) for topic in json.loads(answer.body)["topicList"]]
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(f"the name server's list of topics cannot be read: {answer.body[:100]!r}") from error
