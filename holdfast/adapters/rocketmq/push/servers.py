"""Servers: what is asked of name server and brokers beside the client, by holdfast's own remoting client.

The C++ client starts without a word where there is no name server, does not tell a message's broker, and goes on as if
a message had been sent back also where no broker has taken it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.remoting import Admin, BrokerRefused, RemotingClient, codes
from holdfast.errors import SourceError
from holdfast.plugin.ports import Seen
from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.adapters.rocketmq.remoting import Credentials, Route
    from holdfast.timing import Deadline


class Servers:
    """The name servers, and the brokers of some topics. Raises SourceError (typed)."""

    def __init__(self, namesrv: str, group: str, credentials: Credentials | None) -> None:
        self._client = RemotingClient(namesrv, credentials=credentials)
        self._group = group
        self._topics: Collection[str] = ()

    def open(self, topics: Collection[str], deadline: Deadline, *, latest: bool) -> None:
        """All of these topics exist, the group has an offset in each queue, and brokers take back what is given back.
        Raises SourceUnavailable, UnknownTopic, SourceError.

        Where it has none the client begins at the end or at the beginning, by what the broker has in memory just then.
        """
        brokers: set[str] = set()
        for topic in topics:
            for queue in self._client.route(topic, deadline, fresh=True).queues():
                if queue.broker not in brokers:
                    brokers.add(queue.broker)
                    self._check_retries(queue.broker, deadline)
                if self._client.query_offset(queue, self._group, deadline) is None:
                    look = self._client.max_offset if latest else self._client.min_offset
                    self._begin_at(queue, look(queue, deadline), deadline)
        self._topics = topics

    def _check_retries(self, broker: str, deadline: Deadline) -> None:
        try:
            found = Admin(self._client).retry_queues(self._group, broker, deadline)
        except BrokerRefused as refusal:
            if refusal.code != codes.GROUP_NOT_EXIST:
                raise
            return  # it is made by the first who consumes, with one
        if found == 0:
            raise SourceError(
                f"{broker} has retryQueueNums=0 for the group {self._group}: it would drop what this client gives "
                f"back, and say that all is well; give it 1 (mqadmin updateSubGroup -q 1), or use RocketMQSource"
            )

    def _begin_at(self, queue: Partition, offset: int, deadline: Deadline) -> None:
        commit = partial(self._client.commit_offset, queue, self._group, offset, deadline)
        Admin(self._client).in_group(self._group, queue.broker, commit, deadline)

    def queue(self, topic: str, number: int) -> Partition | None:
        """The queue of that number, as far as known; None: several brokers have the topic. Does not wait."""
        route = self._client.known_route(topic)
        return None if route is None else _only(route, number)

    def look(self, queue: Partition, deadline: Deadline, *, dense: bool) -> Seen:
        """Where the queue's log begins and ends, and what the group has answered."""
        committed = self._client.query_offset(queue, self._group, deadline)
        first = self._client.min_offset(queue, deadline)
        return Seen(first, self._client.max_offset(queue, deadline), committed, dense)

    def reachable(self, deadline: Deadline) -> bool:
        """Whether every broker answers now: what is sent back arrives."""
        try:
            for topic in self._topics:
                route = self._client.route(topic, deadline)
                for name in route.brokers:
                    queue = next((each for each in route.queues() if each.broker == name), None)
                    if queue is not None:
                        self._client.max_offset(queue, deadline)
        except SourceError:
            return False
        return True

    def close(self) -> None:
        """Idempotent."""
        self._client.close()


def _only(route: Route, number: int) -> Partition | None:
    brokers = list(route.brokers)
    return Partition(route.topic, number, brokers[0]) if len(brokers) == 1 else None
