"""Topics of the real RocketMQ in a test's hands: made, and read to their ends."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.remoting import Admin, PullRequest, PullStatus, RemotingClient, Subscription
from holdfast.timing import SYSTEM_CLOCK, Deadline
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.adapters.rocketmq.remoting import StoredMessage
    from holdfast.records import Partition


@contextmanager
def client_of(namesrv: str) -> Iterator[RemotingClient]:
    client = RemotingClient(namesrv)
    try:
        yield client
    finally:
        client.close()


def make_topic(namesrv: str, queues: int = 4, *, name: str | None = None, perm: int = 6) -> str:
    """A topic of its own, on all brokers; returns its name."""
    topic = name or f"topic-{uuid.uuid4().hex[:8]}"
    with client_of(namesrv) as client:
        Admin(client).create_topic(topic, Deadline(PATIENCE_S), queues=queues, perm=perm)
    return topic


def all_of(namesrv: str, topic: str, count: int) -> dict[Partition, list[StoredMessage]]:
    """What its queues have now, queue by queue: `count` at least. A broker acknowledges a message before its queue has
    it."""
    deadline = Deadline(PATIENCE_S)
    with client_of(namesrv) as client:
        queues = client.route(topic, deadline, fresh=True).queues()
        while sum(client.max_offset(queue, deadline) for queue in queues) < count:
            assert not deadline.passed
            SYSTEM_CLOCK.sleep(0.01)
        return {queue: list(_read(client, queue)) for queue in queues}


def messages_of(namesrv: str, topic: str, count: int) -> list[StoredMessage]:
    """The same without the queues."""
    return [message for queue in all_of(namesrv, topic, count).values() for message in queue]


def _read(client: RemotingClient, queue: Partition) -> Iterator[StoredMessage]:
    deadline = Deadline(PATIENCE_S)
    at, end = client.min_offset(queue, deadline), client.max_offset(queue, deadline)
    while at < end:
        assert not deadline.passed, (queue, at, end)
        answer = client.pull(
            PullRequest(
                queue=queue,
                group="TOOLS_CONSUMER",
                offset=at,
                subscription=Subscription(topic=queue.topic),
                max_messages=32,
                suspend_s=0.0,
            ),
            deadline,
        )
        if answer.status is PullStatus.FOUND:
            yield from answer.messages()
        at = answer.next_offset
