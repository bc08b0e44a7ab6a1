"""Two members of one group, one of which joins and leaves again and again: how long each queue is nobody's.

From the moment at which nothing of the queue may start any more in one member (the fence) until the other starts the
first record of it. A message is sent to the queue at that moment, so that there is one to start.
"""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import Holdfast, RedisClaims, RedisCoordinator
from holdfast.adapters.rocketmq import RocketMQSource
from holdfast.adapters.rocketmq.remoting import Message, RemotingClient, Sender
from holdfast.errors import SourceError
from holdfast.plugin.engine.partition.hand_over import HandOver
from holdfast.plugin.engine.partition.ownership import Phase
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.adapters.rocketmq.remoting import Sent
    from holdfast.records import Fence, Partition, Record

_PATIENCE_S = 30.0
_RETRY = "%RETRY%"


class Seen(NamedTuple):
    """What was measured."""

    #: Seconds of each hand-over.
    took_s: list[float]
    #: How many queues each join moved, and each leave.
    joins: list[int]
    leaves: list[int]


class _Watch:
    """Who has which queue, told by fences and by handlers. Any thread."""

    def __init__(self, probe: Callable[[Partition], None]) -> None:
        self._probe = probe
        self._changed = threading.Condition()
        self._fenced: dict[Partition, tuple[float, Fence]] = {}
        self.took_s: list[float] = []
        self.moved = 0
        self.has: dict[Partition, str] = {}

    def fenced(self, owner: Any) -> None:
        """Nothing of that queue starts any more in its old member."""
        with self._changed:
            self.moved += 1
            if owner.partition.topic.startswith(_RETRY):
                return  # it is moved like all others, and has no records
            self._fenced[owner.partition] = time.perf_counter(), owner
        self._probe(owner.partition)

    def started(self, member: str, record: Record) -> None:
        """A handler has begun."""
        now = time.perf_counter()
        with self._changed:
            self.has[record.partition] = member
            if record.partition in self._fenced and self._fenced[record.partition][1] is not record.fence:
                self.took_s.append(now - self._fenced.pop(record.partition)[0])
            self._changed.notify_all()

    def until_moved(self, at_least: int) -> int:
        """So many queues, and each of them is somebody's again. Returns how many; then counts anew."""
        self.until(lambda: self.moved >= at_least, f"{at_least} queues move, not {self.moved}")
        moved, self.moved = self.moved, 0
        return moved

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Also until each queue that was fenced is somebody's again."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._fenced and condition(), _PATIENCE_S):
                raise TimeoutError(f"{what}; fenced: {sorted(self._fenced)}, theirs: {self.has}")

    def share(self, member: str) -> int:
        """How many queues that member has."""
        return sum(each == member for each in self.has.values())


class _App:
    """A member in a thread of its own."""

    def __init__(
        self, namesrv: str, group: str, topics: Sequence[str], redis_url: str, watch: _Watch, name: str
    ) -> None:
        store = RedisClaims.from_url(redis_url, namespace=group)
        source = RocketMQSource(
            namesrv, group, coordinator=RedisCoordinator(store), dedup="position", instance_name=name
        )
        self._app = Holdfast(source, claims=store)
        self._app.handler(list(topics), name="idle")(lambda record: watch.started(name, record))
        self._failed: SimpleQueue[BaseException] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._app.run()
        except BaseException as error:  # noqa: BLE001 - raised by `stop`
            self._failed.put(error)

    def stop(self) -> None:
        """Leave the group; returns when it has."""
        self._app.stop()
        self._thread.join(_PATIENCE_S)
        if not self._failed.empty():
            raise self._failed.get()


def measure(namesrv: str, topics: Sequence[str], group: str, redis_url: str, joins: int) -> Seen:
    """As often as said one member joins the other, and leaves."""
    with RemotingClient(namesrv) as client:
        sender = Sender(client)

        def probe(queue: Partition) -> None:
            def answered(result: Sent | SourceError) -> None:
                if isinstance(result, SourceError):
                    print("a probe was not answered, another is sent:", result, flush=True)
                    probe(queue)

            sender.begin_send(queue, Message(queue.topic, b"probe"), answered)

        queues = [each for topic in topics for each in client.route(topic, Deadline(_PATIENCE_S)).queues()]
        watch = _Watch(probe)
        _watch_fences(watch)
        stays = _App(namesrv, group, topics, redis_url, watch, "stays")
        for queue in queues:
            probe(queue)
        watch.until(lambda: watch.share("stays") == len(queues), "one member has all")
        # The group's retry topic has one queue.
        moved = list(
            _come_and_go(
                joins, watch, (len(queues) + 1) // 2, lambda: _App(namesrv, group, topics, redis_url, watch, "comes")
            )
        )
        stays.stop()
    return Seen(watch.took_s, [each for each, _ in moved], [each for _, each in moved])


def _come_and_go(joins: int, watch: _Watch, fewest: int, join: Callable[[], _App]) -> Iterator[tuple[int, int]]:
    """How many queues each join moved, and each leave."""
    for _ in range(joins):
        comes = join()
        joined = watch.until_moved(fewest)
        comes.stop()
        yield joined, watch.until_moved(joined)


def _watch_fences(watch: _Watch) -> None:
    """In this process, which is a child that measures nothing else."""
    fence = HandOver.fence

    def watched(path: HandOver) -> None:
        owned = [owner for owner in path._owners if owner.phase is Phase.OWNED]
        fence(path)
        for owner in owned:
            watch.fenced(owner)

    HandOver.fence = watched  # type: ignore[method-assign,assignment]
