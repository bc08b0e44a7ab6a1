"""Whether a group's messages are given out one by one (POP), as to gRPC clients: then offsets do not tell its lag.

Who consumes through a proxy is no member that a broker knows, so it takes three signs. That nobody of RocketMQ's own
protocol was ever in the group: a heartbeat makes its retry topic. That a broker has heard lately what it subscribes to:
each pop, and each pull of a member, says so, and it is remembered for some minutes. That somebody waits in a pop.
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
    """Of a group without members. A group of gRPC clients that was one of RocketMQ's own before is not always known.

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
    """Topics in which somebody waits for messages one by one just now, in the group's name, as proxies do for clients
    over gRPC: these are no members that a broker lists. Who has messages in hand and does not wait is not seen.

    Args:
        client: asks.
        group: whose.
        queues: of the topics that are looked at.
        masters: address of each broker's.
        deadline: for all answers.
    """
    asked = _any_queue(queue for queue in queues if queue.broker in masters)
    return sorted({queue.topic for queue in waiting(client, group, asked, masters, deadline)})


def waiting(
    client: RemotingClient, group: str, queues: Sequence[Partition], masters: Mapping[str, str], deadline: Deadline
) -> list[Partition]:
    """The queues in which a pop of the group waits now, as far as brokers say so."""
    asked = [(masters[queue.broker], _waiting(group, queue)) for queue in queues]
    answers = ask_each(client.network, asked, deadline, _read_waiting)
    return [queue for queue, each in zip(queues, answers, strict=True) if isinstance(each, int) and each > 0]


def _any_queue(queues: Iterable[Partition]) -> list[Partition]:
    """A pop need not name a queue, and those of proxies do not: brokers count it under this number."""
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
