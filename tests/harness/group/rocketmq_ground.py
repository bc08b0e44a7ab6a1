"""Scenarios on RocketMQ. Queues are numbered within their topic: queue 3 of broker-a is 3, of broker-b 1003."""

from __future__ import annotations

import threading
import time
import uuid
import zlib
from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.rocketmq.remoting import (
    Admin,
    Message,
    PullRequest,
    PullStatus,
    RemotingClient,
    Sender,
    Sent,
    Subscription,
)
from holdfast.errors import SourceError, SourceUnavailable
from holdfast.timing import Deadline
from tests.harness.group.ground import Commit
from tests.harness.group.ledger import Where
from tests.harness.group.numbers import number_of
from tests.harness.group.orders import Order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.records import Partition
    from tests.harness.group.ground import Placed
    from tests.harness.servers.rocketmq import RocketMQServer

_CALL_S = 15.0
_WATCH_S = 2.0
#: After a refusal.
_RETRY_S = 0.1
#: What is not answered by then is sent again, and may be there twice.
_SEND_S = 30.0
#: Sends under way: a broker takes some thousands at most, of all its producers.
_AT_ONCE = 500


class _Sending(NamedTuple):
    """An order on its way, to that partition where it is to be there."""

    message: Message
    partition: int | None
    placed: Placed


class RocketMQGround:
    """A name server and its brokers."""

    def __init__(self, server: RocketMQServer) -> None:
        self.server = server
        self._client = _client(server.namesrv)
        self._admin = Admin(self._client)

    @property
    def address(self) -> str:
        return self.server.namesrv

    @property
    def log(self) -> str:
        return "\n".join(self.server.log(each) for each in self.server.brokers)

    def create_topic(self, name: str, partitions: int) -> None:
        self._admin.create_topic(name, Deadline(_CALL_S), queues=partitions)

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.create_topic(topic, Deadline(_CALL_S), queues=partitions)

    def partitions(self, topic: str) -> list[int]:
        return [number_of(each) for each in self._queues(topic)]

    def end_offsets(self, topic: str) -> dict[int, int]:
        deadline = Deadline(_CALL_S)
        return {number_of(each): self._client.max_offset(each, deadline) for each in self._queues(topic)}

    def committed(self, group: str, topic: str) -> dict[int, int]:
        return {number: each.offset for number, each in committed(self._client, group, self._queues(topic)).items()}

    def read(self, topic: str) -> Iterator[tuple[Where, Order]]:
        deadline, everything = Deadline(_CALL_S), Subscription(topic=topic, expression="*")
        for each in self._queues(topic):
            offset, end = 0, self._client.max_offset(each, deadline)
            while offset < end:
                asked = PullRequest(
                    queue=each, group="holdfast-tests-log", offset=offset, subscription=everything, suspend_s=0
                )
                answer = self._client.pull(asked, deadline)
                if answer.status is PullStatus.FOUND:
                    for message in answer.messages():
                        yield Where(topic, number_of(each), message.offset), Order.decode(message.body)
                elif answer.next_offset <= offset:
                    msg = f"{each} could not be read beyond {offset} of {end}"
                    raise TimeoutError(msg)
                offset = answer.next_offset

    def sender(self) -> RocketMQSender:
        return RocketMQSender(self.address)

    def watch(self, group: str) -> RocketMQWatch:
        return RocketMQWatch(self.address, group)

    def close(self) -> None:
        self._client.close()

    def _queues(self, topic: str) -> list[Partition]:
        try:
            return self._client.route(topic, Deadline(_CALL_S), fresh=True).queues()
        except SourceError:
            known = self._client.known_route(topic)  # a name server that was started just now knows nothing
            if known is None:
                raise
            return known.queues()


def _client(namesrv: str) -> RemotingClient:
    return RemotingClient(namesrv, route_max_age_s=1.0)  # queues that are added get their share


def committed(client: RemotingClient, group: str, queues: Sequence[Partition]) -> dict[int, Commit]:
    """Raises SourceError."""
    deadline = Deadline(_WATCH_S)
    found = {number_of(each): client.query_offset(each, group, deadline) for each in queues}
    return {number: Commit(offset) for number, offset in found.items() if offset is not None}


class RocketMQSender:
    """Keeps at each order until a broker has it. A retry has the UNIQ_KEY of the first try: it may be stored twice, and
    is one message to whoever looks at that.

    A broker that comes back finds a few hundred orders at its door, not all that have waited: it would refuse them as
    too many, again and again.
    """

    def __init__(self, namesrv: str) -> None:
        self._client = _client(namesrv)
        self._sender = Sender(self._client)
        #: Guards what follows; told of each change.
        self._changed = threading.Condition()
        self._waiting = deque[_Sending]()
        self._under_way = 0
        self._refusals = Counter[str]()
        self._refused_at = float("-inf")
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="traffic-sends", daemon=True)
        self._thread.start()

    def send(self, topic: str, order: Order, partition: int | None, placed: Placed) -> None:
        identity = {"UNIQ_KEY": uuid.uuid4().hex.upper()}
        message = Message(topic, order.encode(), keys=order.lane, properties=identity)
        with self._changed:
            self._waiting.append(_Sending(message, partition, placed))
            self._changed.notify_all()

    def _run(self) -> None:
        while (sending := self._next()) is not None:
            self._begin(sending)

    def _next(self) -> _Sending | None:
        """The one to send now; None = the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._waiting and self._under_way < _AT_ONCE))
            while not self._closed and (left_s := self._refused_at + _RETRY_S - time.monotonic()) > 0:
                self._changed.wait(left_s)
            if self._closed:
                return None
            self._under_way += 1
            return self._waiting.popleft()

    def _begin(self, sending: _Sending) -> None:
        def answered(result: Sent | SourceError) -> None:
            if isinstance(result, Sent):
                where = Where(sending.message.topic, number_of(result.queue), result.offset)
                self._done(sending, where, None)
            elif isinstance(result, SourceUnavailable):
                self._again(sending, result)
            else:
                self._done(sending, None, str(result))

        try:
            queue = self._choose(sending.message, sending.partition)
            self._sender.begin_send(queue, sending.message, answered, timeout_s=_SEND_S)
        except SourceError as error:
            answered(error)

    def _choose(self, message: Message, partition: int | None) -> Partition:
        route = self._client.known_route(message.topic) or self._client.route(message.topic, Deadline(_CALL_S))
        queues = route.queues(read=False)
        if not queues:
            raise SourceUnavailable(f"{message.topic} has no queue that can be written now")
        if partition is None:
            return queues[zlib.crc32(str(message.keys).encode()) % len(queues)]
        return next(each for each in queues if number_of(each) == partition)

    def _again(self, sending: _Sending, error: SourceUnavailable) -> None:
        with self._changed:
            self._refusals[str(error)] += 1
            self._refused_at = time.monotonic()
            self._under_way -= 1
            self._waiting.append(sending)
            self._changed.notify_all()

    def _done(self, sending: _Sending, where: Where | None, error: str | None) -> None:
        sending.placed(where, error)
        with self._changed:
            self._under_way -= 1
            self._changed.notify_all()

    def flush(self, within_s: float) -> int:
        with self._changed:
            self._changed.wait_for(lambda: not self._left, within_s)
            return self._left

    @property
    def _left(self) -> int:
        return self._under_way + len(self._waiting)

    @property
    def refusals(self) -> dict[str, int]:
        with self._changed:
            return dict(self._refusals.most_common(5))  # a busy broker's reasons differ by milliseconds

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(_CALL_S)
        self._client.close()


class RocketMQWatch:
    """A client of its own, which sends no heartbeats."""

    def __init__(self, namesrv: str, group: str) -> None:
        self._client, self._group = _client(namesrv), group

    def committed(self, topic: str, partitions: Sequence[int]) -> dict[int, Commit] | None:
        try:
            route = self._client.known_route(topic) or self._client.route(topic, Deadline(_WATCH_S))
            return committed(
                self._client, self._group, [each for each in route.queues() if number_of(each) in partitions]
            )
        except SourceError:
            return None

    def close(self) -> None:
        self._client.close()
