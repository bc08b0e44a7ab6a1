"""Finds whether a group's messages are given out by POP, as to gRPC clients. Then offsets do not show the group's lag.

Brokers do not list consumers behind a proxy as members, so there are only signs. One is a pop that waits at a broker.
The other: the group has no retry topic, so no client of the remoting protocol was ever a member (its heartbeat creates
the topic), but a broker has the group's subscription. Each pop and each pull tells a broker the subscription, which it
keeps for some minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.names import retry_topic
from holdfast.adapters.rocketmq.remoting import codes
from holdfast.adapters.rocketmq.remoting.in_flight import Request
from holdfast.adapters.rocketmq.remoting.network import ask_each
from holdfast.errors import UnknownTopic
from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from holdfast.adapters.rocketmq.remoting import RemotingClient
    from holdfast.adapters.rocketmq.remoting.answers import Answer
    from holdfast.timing import Deadline


def given_out(
    client: RemotingClient,
    group: str,
    queues: Collection[Partition],
    masters: Mapping[str, str],
    deadline: Deadline,
) -> bool:
    """Whether a group without listed members is consumed by POP. A group that had remoting members before is found only
    while a pop waits.

    Raises SourceError: the name servers do not answer.
    """
    mine = [queue for queue in queues if queue.broker in masters and queue.topic != retry_topic(group)]
    if waiting(client, group, [*mine, *_any_queue(mine)], masters, deadline):
        return True
    try:
        client.route(retry_topic(group), deadline, fresh=True)
    except UnknownTopic:
        pairs = sorted({(queue.broker, queue.topic) for queue in mine})
        asked = [(masters[broker], _subscription(group, topic)) for broker, topic in pairs]
        return any(each is True for each in ask_each(client.network, asked, deadline, _read_subscription))
    return False


def popped_topics(
    client: RemotingClient, group: str, queues: Iterable[Partition], masters: Mapping[str, str], deadline: Deadline
) -> list[str]:
    """Topics in which a pop of the group waits now, as proxies send it for gRPC clients, which brokers do not list as
    members. A client that has messages in hand and does not poll is not seen.

    Args:
        client: sends the requests.
        group: the consumer group.
        queues: queues of the topics to check.
        masters: broker -> address of its master.
        deadline: for all answers.
    """
    asked = _any_queue(queue for queue in queues if queue.broker in masters)
    return sorted({queue.topic for queue in waiting(client, group, asked, masters, deadline)})


def waiting(
    client: RemotingClient, group: str, queues: Sequence[Partition], masters: Mapping[str, str], deadline: Deadline
) -> list[Partition]:
    """The queues in which a pop of the group waits now, at the brokers that answer."""
    asked = [(masters[queue.broker], _waiting(group, queue)) for queue in queues]
    answers = ask_each(client.network, asked, deadline, _read_waiting)
    return [queue for queue, each in zip(queues, answers, strict=True) if isinstance(each, int) and each > 0]


def _any_queue(queues: Iterable[Partition]) -> list[Partition]:
    """The topics' queues of number -1: brokers count pops that name no queue under it, as those of proxies."""
    return sorted({Partition(queue.topic, -1, queue.broker) for queue in queues})


def _waiting(group: str, queue: Partition) -> Request:
    fields = {"consumerGroup": group, "topic": queue.topic, "queueId": str(queue.number)}
    return Request(codes.Request.POLLING_INFO, f"asking who waits in {queue}", fields)


def _read_waiting(answer: Answer) -> int:
    return answer.expect().number("pollingNum")


def _subscription(group: str, topic: str) -> Request:
    what = f"asking what {group} wants of {topic}"
    return Request(codes.Request.QUERY_SUBSCRIPTION_BY_CONSUMER, what, {"group": group, "topic": topic})


def _read_subscription(answer: Answer) -> bool:
    return b'"subscriptionData"' in answer.expect().body
