"""QueueViews: masters, logs and offsets of a group's queues. A fault of one queue is noted there; others are shown."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.remoting.admin import ask_lag, ask_stats, read_lag, read_stats
from holdfast.adapters.rocketmq.remoting.network import ask_each
from holdfast.adapters.rocketmq.remoting.queues import query, read_query
from holdfast.errors import SourceError, UnknownTopic
from holdfast.tools.advice.group_view import Node, PartitionView

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import TypeVar

    from holdfast.adapters.rocketmq.remoting import QueueLag, QueueStats, RemotingClient
    from holdfast.adapters.rocketmq.remoting.answers import Answer
    from holdfast.adapters.rocketmq.remoting.in_flight import Request
    from holdfast.records import Partition
    from holdfast.timing import Deadline

    T = TypeVar("T")


class QueueViews:
    """Views of queues. One thread."""

    def __init__(self, client: RemotingClient, group: str) -> None:
        self._client, self._group = client, group

    def view(
        self,
        topics: Collection[str],
        must: Collection[str],
        has: Collection[Partition],
        masters: Mapping[str, str],
        deadline: Deadline,
    ) -> dict[Partition, PartitionView]:
        """All readable queues of the topics, and those that members read.

        Args:
            topics: the topics; one that does not exist has no queues.
            must: topics that must exist.
            has: queues that members read, listed by a broker or not.
            masters: broker -> address of its master.
            deadline: for all requests.

        Raises:
            UnknownTopic: one of `must`.
            SourceError: name servers do not answer, or refuse.
        """
        listed: set[Partition] = set()
        missing = set()
        for topic in sorted(topics):
            try:
                listed.update(self._client.route(topic, deadline, fresh=True).queues())
            except UnknownTopic:
                if topic in must:
                    raise
                missing.add(topic)
        reachable = [queue for queue in listed.union(has) if queue.broker in masters]
        lags, stats, faults = self._logs(reachable, masters, deadline)
        # A broker answers 0 also for "none", and leaves out topics to which the group no longer subscribes.
        doubtful = [queue for queue in reachable if queue not in lags or not lags[queue].consumer_offset]
        asked = [(masters[queue.broker], query(queue, self._group)) for queue in doubtful]
        exact = dict(zip(doubtful, ask_each(self._client.network, asked, deadline, read_query), strict=True))
        views = {}
        for queue in sorted(listed.union(has)):
            lag, stat, told = lags.get(queue), stats.get(queue), exact.get(queue)
            fault = ""
            if queue.topic in missing:
                fault = "there is no such topic any more"
            elif queue.broker not in masters:
                fault = "its broker has no master now"
            elif queue not in listed:
                fault = "its broker does not list it any more"
            elif isinstance(told, SourceError):
                fault = str(told)
            elif stat is None:
                fault = faults.get(queue.broker, "its broker does not tell")
            committed = lag.consumer_offset if lag and queue not in exact else told
            address = masters.get(queue.broker)
            views[queue] = PartitionView(
                partition=queue,
                committed=committed if isinstance(committed, int) else None,
                first=stat.min_offset if stat else None,
                end=stat.max_offset if stat else None,
                leader=Node(queue.broker, address) if address else None,
                exists=queue.topic not in missing,
                read_up_to_ms=lag.last_ms if lag and lag.last_ms > 0 else None,
                fault=fault,
            )
        return views

    def _logs(
        self, queues: Collection[Partition], masters: Mapping[str, str], deadline: Deadline
    ) -> tuple[dict[Partition, QueueLag], dict[Partition, QueueStats], dict[str, str]]:
        """Lags, logs, and faults by broker. Offsets are read first, so that no log seems to end before an offset."""
        topics: dict[str, set[str]] = defaultdict(set)
        for queue in queues:
            topics[queue.broker].add(queue.topic)
        pairs = [(broker, topic) for broker, found in sorted(topics.items()) for topic in sorted(found)]
        faults: dict[str, str] = {}

        def ask(request: Callable[[str], Request], read: Callable[[Answer], dict[Partition, T]]) -> dict[Partition, T]:
            asked = [(masters[broker], request(topic)) for broker, topic in pairs]
            merged: dict[Partition, T] = {}
            for (broker, _), reply in zip(pairs, ask_each(self._client.network, asked, deadline, read), strict=True):
                if isinstance(reply, SourceError):
                    faults[broker] = str(reply)
                else:
                    merged |= reply
            return merged

        lags = ask(lambda topic: ask_lag(self._group, topic), read_lag)
        return lags, ask(ask_stats, read_stats), faults
