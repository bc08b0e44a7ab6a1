"""What is compared: a bare loop over holdfast's remoting client, and the app; each in a process of its own."""

from __future__ import annotations

import time
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast, RedisClaims, RedisCoordinator, Settings
from holdfast.adapters.rocketmq import RocketMQSource
from holdfast.adapters.rocketmq.remoting import PullRequest, RemotingClient, Subscription
from holdfast.errors import SourceError
from holdfast.timing import Deadline
from tests.benchmarks.consumers import Counter

if TYPE_CHECKING:
    from holdfast.adapters.rocketmq.remoting import PullAnswer
    from holdfast.records import Partition
    from tests.benchmarks.lab import Speed

_CALL_S = 30.0


def bare(namesrv: str, topic: str, group: str, records: int) -> Speed:
    """One pull in flight for each queue, a function called for each message, commits twice a second."""
    counter = Counter(records)
    answers: SimpleQueue[tuple[Partition, PullAnswer | SourceError]] = SimpleQueue()
    with RemotingClient(namesrv) as client:

        def ask(queue: Partition, offset: int) -> None:
            request = PullRequest(queue=queue, group=group, offset=offset, subscription=subscription)
            client.begin_pull(request, partial(_put, answers, queue))

        subscription = Subscription(topic=topic)
        offsets = dict.fromkeys(client.route(topic, Deadline(_CALL_S)).queues(), 0)
        for queue in offsets:
            ask(queue, 0)
        commit_at = time.monotonic() + 0.5
        while not counter.over:
            queue, answer = answers.get(timeout=_CALL_S)
            if isinstance(answer, SourceError):
                raise answer
            ask(queue, answer.next_offset)
            for message in answer.messages():
                counter.one(message.body)
            offsets[queue] = answer.next_offset
            if time.monotonic() >= commit_at:
                commit_at += 0.5
                for each, offset in offsets.items():
                    client.begin_commit(each, group, offset, _ignore)
    return counter.speed


def app(namesrv: str, topic: str, group: str, records: int, redis_url: str, **settings: Any) -> Speed:
    """The whole app, with position dedup."""
    claims = RedisClaims.from_url(redis_url, namespace=group)
    source = RocketMQSource(namesrv, group, coordinator=RedisCoordinator(claims), dedup="position")
    holdfast = Holdfast(source, claims=claims, settings=Settings(ramp=None, **settings))
    counter = Counter(records, holdfast.stop)
    holdfast.handler(topic, name="bench")(counter.one)
    holdfast.run()
    return counter.speed


def _put(
    answers: SimpleQueue[tuple[Partition, PullAnswer | SourceError]], queue: Partition, answer: PullAnswer | SourceError
) -> None:
    answers.put((queue, answer))


def _ignore(_: object) -> None:
    """The next commit says more."""
