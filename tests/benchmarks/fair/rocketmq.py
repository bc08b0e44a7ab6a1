"""The same on RocketMQ's pull source: its backlog, its producer, an app and a bare loop, each in its own process."""

from __future__ import annotations

from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from holdfast import Holdfast, RedisClaims, RedisCoordinator, Settings
from holdfast.adapters.rocketmq import RocketMQSource
from holdfast.adapters.rocketmq.remoting import Message, PullRequest, RemotingClient, Sender, Subscription
from holdfast.errors import SourceError, UnknownTopic
from holdfast.timing import Deadline
from tests.benchmarks.fair.fresh import BACKLOG, FRESH, Fresh
from tests.benchmarks.lab import value
from tests.benchmarks.on_rocketmq import topics

if TYPE_CHECKING:
    from holdfast.adapters.rocketmq.remoting import PullAnswer
    from holdfast.records import Partition
    from tests.benchmarks.fair.fresh import Plan, Send, Waits

_CALL_S = 30.0
_BATCH = 500


def filled(namesrv: str, topic: str) -> bool:
    """Whether it was filled before."""
    with RemotingClient(namesrv) as client:
        try:
            return client.max_offset(_queues(client, topic)[BACKLOG], Deadline(_CALL_S)) > 0
        except UnknownTopic:
            return False


def fill(namesrv: str, topic: str, records: int) -> None:
    """A topic of two queues, one of which has that many messages."""
    topics.make(namesrv, topic, queues=2)
    with RemotingClient(namesrv) as client:
        sender, queue = Sender(client), _queues(client, topic)[BACKLOG]
        for first in range(0, records, _BATCH):
            messages = [Message(topic, value(each), keys=f"{each}") for each in range(first, first + _BATCH)]
            sender.send_batch(queue, messages, Deadline(_CALL_S))


def begin(namesrv: str, topic: str, group: str) -> None:
    """The group is to read the backlog from its start, and the other queue from its end."""
    topics.begin_at_start(namesrv, topic, group)
    with RemotingClient(namesrv) as client:
        queue = _queues(client, topic)[FRESH]
        client.commit_offset(queue, group, client.max_offset(queue, Deadline(_CALL_S)), Deadline(_CALL_S))


def app(plan: Plan, redis_url: str) -> Waits:
    """The whole app, with position dedup and the default ramp."""
    claims = RedisClaims.from_url(redis_url, namespace=plan.group)
    source = RocketMQSource(plan.bootstrap, plan.group, coordinator=RedisCoordinator(claims), dedup="position")
    holdfast = Holdfast(source, claims=claims, settings=Settings(workers=plan.workers))
    with RemotingClient(plan.bootstrap) as client:
        fresh = Fresh(plan, lambda _: holdfast.stop(), _sender(client, plan))
        holdfast.handler(plan.topic, name="bench")(lambda record: fresh.handle(record.value))
        holdfast.run()
        return fresh.waits


def bare(plan: Plan) -> Waits:
    """One pull in flight for each queue; messages are handled answer by answer."""
    answers: SimpleQueue[tuple[Partition, PullAnswer | SourceError]] = SimpleQueue()
    with RemotingClient(plan.bootstrap) as client:

        def ask(queue: Partition, offset: int) -> None:
            request = PullRequest(
                queue=queue, group=plan.group, offset=offset, subscription=Subscription(topic=plan.topic)
            )
            client.begin_pull(request, partial(_put, answers, queue))

        fresh, queues = Fresh(plan, lambda _: None, _sender(client, plan)), _queues(client, plan.topic)
        ask(queues[BACKLOG], 0)
        ask(queues[FRESH], client.max_offset(queues[FRESH], Deadline(_CALL_S)))
        while not fresh.finished:
            queue, answer = answers.get(timeout=_CALL_S)
            if isinstance(answer, SourceError):
                raise answer
            ask(queue, answer.next_offset)
            fresh.polls += 1
            for message in answer.messages():
                if not fresh.finished:
                    fresh.handle(message.body)
    return fresh.waits


def _sender(client: RemotingClient, plan: Plan) -> Send:
    sender, queue = Sender(client), _queues(client, plan.topic)[FRESH]

    def send(key: bytes, body: bytes) -> None:
        sender.begin_send(queue, Message(plan.topic, body, keys=key.decode()), _ignore)

    return send


def _queues(client: RemotingClient, topic: str) -> dict[int, Partition]:
    return {each.number: each for each in client.route(topic, Deadline(_CALL_S), fresh=True).queues()}


def _put(
    answers: SimpleQueue[tuple[Partition, PullAnswer | SourceError]], queue: Partition, answer: PullAnswer | SourceError
) -> None:
    answers.put((queue, answer))


def _ignore(_: object) -> None:
    """A message that is not acknowledged is not handled, which shows."""
