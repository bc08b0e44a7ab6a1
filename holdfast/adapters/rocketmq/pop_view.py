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

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast.adapters.rocketmq.remoting import RemotingClient
    from holdfast.adapters.rocketmq.remoting.answers import Answer
    from holdfast.records import Partition
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
    waiting = ask_each(
        client.network, [(masters[queue.broker], _waiting(group, queue)) for queue in mine], deadline, _read_waiting
    )
    if any(isinstance(each, int) and each for each in waiting):
        return True
    try:
        client.route(retry_topic(group), deadline, fresh=True)
    except UnknownTopic:
        pairs = sorted({(queue.broker, queue.topic) for queue in mine})
        asked = [(masters[broker], _subscription(group, topic)) for broker, topic in pairs]
        return any(each is True for each in ask_each(client.network, asked, deadline, _read_subscription))
    return False


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
