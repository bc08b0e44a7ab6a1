"""Servers: requests to name servers and brokers through holdfast's own remoting client, besides the C++ client.

The C++ client starts without an error if there is no name server, does not report a message's broker, and takes a
message for sent back even if no broker has accepted it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.left_behind import LeftBehindWatch
from holdfast.adapters.rocketmq.names import canonical, pop_retry_topics
from holdfast.adapters.rocketmq.reaching import look_for_all, reach
from holdfast.adapters.rocketmq.remoting import Admin, BrokerRefused, RemotingClient
from holdfast.errors import NotAuthorised, SettingError, SourceError, SourceUnavailable, SubscriptionDiffers
from holdfast.plugin.ports import Seen
from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.adapters.rocketmq.remoting import Credentials, Route
    from holdfast.timing import Deadline


class Servers:
    """Requests to the name servers, and to the brokers of the source's topics. All raise SourceError."""

    def __init__(self, namesrv: str, group: str, credentials: Credentials | None) -> None:
        self._client = RemotingClient(namesrv, credentials=credentials)
        self._namesrv, self._group = namesrv, group
        self._topics: Collection[str] = ()
        self._queues: Sequence[Partition] = ()

    def reach(self, topics: Collection[str], deadline: Deadline) -> None:
        """Wait for the name servers, and look for the topics. Raises SourceError; UnknownTopic names all missing
        topics. While the name servers know no broker, because they have just started, missing topics are waited for."""

        def look() -> None:
            look_for_all(sorted(topics), lambda topic: self._client.route(topic, deadline))

        reach(look, self._namesrv, deadline, lambda: not self._knows_brokers(deadline))

    def _knows_brokers(self, deadline: Deadline) -> bool:
        try:
            return bool(Admin(self._client).cluster(deadline).brokers)
        except SourceUnavailable:
            return False

    def lists(self, instance: str, deadline: Deadline) -> bool:
        """Whether a broker lists a client in the group whose id contains this instance name. Raises SourceUnavailable:
        no broker lists it, and one does not answer; NotAuthorised, BrokerRefused: the request is not permitted."""
        away: SourceUnavailable | None = None
        for broker in sorted({queue.broker for queue in self._queues}):
            try:
                seen = Admin(self._client).connections(broker, self._group, deadline)
            except SourceUnavailable as error:
                away = error
                continue
            if seen is not None and any(instance in member.client_id for member in seen.members):
                return True
        if away is not None:
            raise away
        return False

    def check(self, subscriptions: Mapping[str, str], deadline: Deadline) -> None:
        """Check that these topics exist, that the brokers have the group and accept messages that are sent back, and
        that connected members have the same subscription. Raises SourceUnavailable, UnknownTopic, UnknownGroup,
        SubscriptionDiffers, SourceError.
        """
        self._topics = sorted(subscriptions)
        self._queues = [
            queue for topic in self._topics for queue in self._client.route(topic, deadline, fresh=True).queues()
        ]
        for broker in sorted({queue.broker for queue in self._queues}):
            self._check_retries(broker, deadline)
            self._check_subscriptions(broker, subscriptions, deadline)

    def left_behind(self) -> LeftBehindWatch:
        """A watch over the group's POP retry topics, which have messages that a LeasedSource has not acknowledged. The
        C++ client does not read them."""
        topics = [each for topic in self._topics for each in pop_retry_topics(self._group, topic)]
        return LeftBehindWatch(
            self._client, self._group, topics, readers="a RocketMQSource or a LeasedSource", members_read=False
        )

    def commit_first_offsets(self, deadline: Deadline, *, latest: bool) -> None:
        """Commit an offset in each queue in which the group has none. Otherwise the client begins at the end or at the
        beginning, depending on the broker's memory at that moment. Raises SourceError.

        "latest" applies to topics in which the group has no offset at all. If the group reads the topic, a queue
        without an offset is on a broker that was added later: all its messages are ones that the group has missed.
        """
        found = {queue: self._client.query_offset(queue, self._group, deadline) for queue in self._queues}
        read = {queue.topic for queue, offset in found.items() if offset is not None}
        for queue, offset in found.items():
            if offset is None:
                is_new = latest and queue.topic not in read
                first = (self._client.max_offset if is_new else self._client.min_offset)(queue, deadline)
                self._client.commit_offset(queue, self._group, first, deadline)

    def cluster(self) -> frozenset[str]:
        """Addresses of the cluster's servers, as far as known."""
        for topic in self._topics:
            self._client.known_route(topic)  # begins a refresh if one is due
        return self._client.servers()

    def _check_retries(self, broker: str, deadline: Deadline) -> None:
        if Admin(self._client).group_settings(self._group, broker, deadline).retry_queues == 0:
            raise SourceError(
                f"{broker} has retryQueueNums=0 for the group {self._group}: it would drop what this client gives "
                f"back, and say that all is well; give it 1 (mqadmin updateSubGroup -q 1), or use RocketMQSource"
            )

    def _check_subscriptions(self, broker: str, ours: Mapping[str, str], deadline: Deadline) -> None:
        """Compare subscriptions with those that a broker has for the group, of any client and store. The broker applies
        the newest to all members. Raises SubscriptionDiffers."""
        try:
            seen = Admin(self._client).connections(broker, self._group, deadline)
        except (NotAuthorised, BrokerRefused):  # a tools' request, which may need more permissions than consuming
            return
        others = {} if seen is None else {topic: each for topic, each in seen.subscriptions.items() if topic in ours}
        if seen is not None and any(_comparable(each) != _comparable(ours[topic]) for topic, each in others.items()):
            raise SubscriptionDiffers(
                f"members of the group {self._group} at {broker} "
                f"({', '.join(sorted(each.client_id for each in seen.members))}) subscribe to {_as_text(others)}, and "
                f"this one to {_as_text(ours)}. RocketMQ takes the newest subscription for all, and messages of tags "
                f"that one does not name are lost: make them alike, stop the others first, or use another group"
            )

    def queue(self, topic: str, number: int) -> Partition | None:
        """The queue with this number; None: the topic has several brokers, or no known route. Does not wait."""
        route = self._client.known_route(topic)
        return None if route is None else _queue_of_only_broker(route, number)

    def look(self, queue: Partition, deadline: Deadline, *, dense: bool) -> Seen:
        """The beginning and the end of the queue's log, and the group's committed offset."""
        committed = self._client.query_offset(queue, self._group, deadline)
        first = self._client.min_offset(queue, deadline)
        return Seen(first, self._client.max_offset(queue, deadline), committed, dense)

    def reachable(self, deadline: Deadline) -> bool:
        """Whether every broker answers now, so that messages can be sent back."""
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
        """Close the connections. Idempotent."""
        self._client.close()


def _comparable(expression: str) -> str:
    """A canonical form: equal for expressions with the same meaning."""
    try:
        return canonical(expression)
    except SettingError:  # not tags, but an SQL condition
        return expression


def _as_text(subscriptions: Mapping[str, str]) -> str:
    return ", ".join(f"{topic}:{_comparable(each)}" for topic, each in sorted(subscriptions.items()))


def _queue_of_only_broker(route: Route, number: int) -> Partition | None:
    brokers = list(route.brokers)
    return Partition(route.topic, number, brokers[0]) if len(brokers) == 1 else None
