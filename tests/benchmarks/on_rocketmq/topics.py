"""Filled topics on RocketMQ, and groups that begin at their start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.remoting import (
    Admin,
    Message,
    PullRequest,
    RemotingClient,
    Sender,
    Subscription,
)
from holdfast.timing import Deadline
from tests.benchmarks.lab import value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.records import Partition

QUEUES = 8
_BATCH = 500
_CALL_S = 30.0


def make(namesrv: str, topic: str, queues: int = QUEUES) -> None:
    """An empty topic."""
    with RemotingClient(namesrv) as client:
        Admin(client).create_topic(topic, Deadline(_CALL_S), queues=queues)


def fill(namesrv: str, topic: str, records: int) -> None:
    """A topic with that many messages of 100 bytes, each with an identity of its own, as many in each queue."""
    make(namesrv, topic)
    with RemotingClient(namesrv) as client:
        sender = Sender(client)
        queues = client.route(topic, Deadline(_CALL_S), fresh=True).queues(read=False)
        for number, first in enumerate(range(0, records, _BATCH)):
            numbers = range(first, min(first + _BATCH, records))
            messages = [Message(topic, value(each)) for each in numbers]
            sender.send_batch(queues[number % len(queues)], messages, Deadline(_CALL_S))


def begin_at_start(namesrv: str, topic: str, group: str) -> None:
    """The group is known, and its offsets are 0: a client that begins new groups at the end begins at the start."""
    with RemotingClient(namesrv) as client:
        queues: Sequence[Partition] = client.route(topic, Deadline(_CALL_S)).queues()
        for queue in queues:
            client.pull(
                PullRequest(
                    queue=queue,
                    group=group,
                    offset=0,
                    subscription=Subscription(topic=topic),
                    max_messages=1,
                    suspend_s=0,
                ),
                Deadline(_CALL_S),
            )
            client.commit_offset(queue, group, 0, Deadline(_CALL_S))
