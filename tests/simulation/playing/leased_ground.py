"""Ground of leased messages: a delivery hides its message for a lease, and each message is acknowledged alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.grpc.by_message import ByMessage
from holdfast.adapters.rocketmq.grpc.config import Wanted
from holdfast.adapters.rocketmq.grpc.delivery import Verdict
from holdfast.adapters.rocketmq.remoting.messages import UNIQUE_KEY
from holdfast.adapters.rocketmq.unique_keys import identity_of
from holdfast.errors import RecordUnreadable
from holdfast.records import Partition
from holdfast.testing.brokers.agenda import Line
from holdfast.testing.brokers.kafka import MemoryBroker
from tests.simulation.brokers.proxy import Message, Proxy
from tests.simulation.brokers.proxy_client import ProxyClient
from tests.simulation.playing.book import GROUP, RecordPlace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.plugin.events import Event
    from holdfast.plugin.ports import Batch, CommitFate
    from holdfast.records import Fence
    from holdfast.testing.brokers.kafka_group import Attempt
    from holdfast.testing.process import Process
    from tests.simulation.brokers.proxy import Copy
    from tests.simulation.drawing.world import FaultKind, Planned
    from tests.simulation.playing.book import Placed
    from tests.simulation.playing.stage import Stage

#: Shorter than the real proxy's 5 s and 4 s, as leases are. As there, a poll waits for half of a lease at most, since a
#: lease may have begun when the poll was sent.
_POLL_S, _BACK_S = 1.0, 0.2
#: Faults that end leases of a member that is well.
_UPSETS: frozenset[FaultKind] = frozenset({"lose", "stall", "cut", "late", "twice"})


class LeasedGround:
    """RocketMQ's messages, one by one. A message without a business key is claimed by its message id."""

    #: There are no positions, nothing moves between members, and the client knows no leaders of topics.
    without: frozenset[FaultKind] = frozenset(
        {"grow", "markers", "compact", "reset", "remake", "leaderless", "foreign", "forget"}
    )

    def __init__(self, stage: Stage) -> None:
        runtime = stage.scheduler.process("broker", preempted=False).runtime
        #: The messages in the order in which they were stored; the proxy delivers them.
        self.broker = MemoryBroker(runtime)
        for topic in stage.world.topics:
            self.broker.create(topic.name, topic.partitions)
        self.group = _Group()
        self._stage, self._proxy = stage, _Proxy(stage, self.group)

    def source(self, process: Process, static_id: str | None) -> _Source:
        """Implements `Ground.source`."""
        return _Source(self._stage, self._proxy, process)

    def lose(self, source: object) -> None:
        """End all leases of a member at once."""
        if isinstance(source, _Source):
            self._proxy.end_leases(source.name)

    def begins(self, partitions: Sequence[Partition]) -> None:
        """Implements `Ground.begins`."""

    def commit_elsewhere(self, partition: Partition, offset: int) -> None:
        """Implements `Ground.commit_elsewhere`: there is nothing to commit."""

    def is_foreign(self, partition: Partition) -> bool:
        """Implements `Ground.is_foreign`."""
        return False

    def told(self, member: str, event: Event) -> None:
        """Implements `Ground.told`."""

    def store(self, number: int, plan: Planned, value: str) -> RecordPlace:
        """Implements `Ground.store`."""
        name, key = f"u{number}", plan.key
        [offset] = self.broker.produce(plan.topic, plan.partition, value, key=key)
        self._proxy.put(number, Message(plan.topic, name, value.encode(), None if key is None else key.encode()))
        identity = identity_of(name, value.encode())
        return RecordPlace(self._stage.log(Partition(plan.topic, plan.partition)), offset, identity)

    def store_again(self, first: Placed) -> RecordPlace | None:
        """Implements `Ground.store_again`. A copy has the same name, and is the same message."""
        self._proxy.again(first.number)
        return None

    def number(self, partition: Partition, offset: int, source: object) -> int:
        """Implements `Ground.number`: an offset is the number that the member gave to a delivery."""
        if not isinstance(source, _Source):
            raise TypeError(source)
        return source.numbers[offset]

    def judge(self, member: str, attempt: Attempt) -> None:
        """Nothing is committed; `_Proxy` judges acknowledgements."""

    def done(self, record: Placed) -> bool:
        """Always False: there are no positions, only keys and message ids."""
        return record.unit.key is not None and self._stage.finished(record.unit.key)

    def position(self, partition: Partition) -> str:
        """Implements `Ground.position`; not used."""
        return str(partition)

    def is_blind(self, fence: Fence, record: Placed) -> bool:
        """Always False: there are no logs."""
        return False

    def committed(self, partition: Partition) -> int | None:
        """There is none."""
        return None

    @property
    def progress(self) -> int:
        """Implements `Ground.progress`."""
        return self._proxy.ended

    def behind(self) -> list[str]:
        """Implements `Ground.behind`."""
        left = len(self._proxy.open)
        return [f"{left} messages are not acknowledged"] if left else []


class _Group:
    """A group without offsets."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.members: Sequence[object] = ()
        #: So many acknowledgements get no answer; every second one is applied.
        self.refusals = 0

    def offset(self, partition: Partition) -> int | None:
        """There is none."""
        return None

    def set_offset(self, partition: Partition, offset: int | None) -> None:
        """There is none."""

    def refuse(self, partition: Partition, *fates: CommitFate) -> None:
        """Have so many of the next acknowledgements get no answer."""
        self.refusals += len(fates)


class _Proxy(Proxy):
    """Judges that messages are acknowledged after their handlers, and not taken from a member that holds them."""

    def __init__(self, stage: Stage, group: _Group) -> None:
        super().__init__(stage.scheduler, deliveries=float("inf"), back_s=_BACK_S)
        self._stage, self._group = stage, group
        self._messages: dict[int, Message] = {}
        #: Message id -> number of the record in the book.
        self.numbers: dict[str, int] = {}
        #: Whether faults end leases that are renewed in time.
        self._upset = any(fault.kind in _UPSETS for fault in stage.world.faults)

    def put(self, number: int, message: Message) -> None:
        """Store a message as soon as its record is in the book."""
        self.numbers[message.name], self._messages[number] = number, message
        self._scheduler.at(self._scheduler.now, lambda: self.store(message))

    def again(self, number: int) -> None:
        """Store a copy, as a producer without an answer does."""
        self.store(self._messages[number])

    def acknowledge(self, receipt: str) -> Verdict:
        """Implements `Proxy.acknowledge`; some get no answer."""
        if not self._group.refusals:
            return super().acknowledge(receipt)
        self._group.refusals -= 1
        if self._group.refusals % 2:
            super().acknowledge(receipt)
        return Verdict.UNKNOWN

    def delivered(self, copy: Copy, holder: str) -> None:
        """Implements `Proxy.delivered`. P4: what a member holds that lives and is well is no other's."""
        stage, record = self._stage, self._record(copy.message)
        record.delivered_at = stage.now
        before = None if copy.lease is None else copy.lease.holder
        member = next((each for each in stage.living if each.name == before), None)
        if member is None or member.engine is None or member.engine.parts.stopping.begun or stage.judges.away:
            return
        inline = not stage.world.settings.workers
        for run in record.unit.runs:
            mine = run.record is record and run.member == member.name
            if mine and run.ended_at is None and not (run.given_up or inline or self._upset):
                stage.judges.broken("LEASE", f"{record} is delivered again, and runs at {member.name}, which is well")

    def acknowledged(self, message: Message, holder: str | None) -> None:
        """Implements `Proxy.acknowledged`."""
        self._stage.judges.acknowledged(holder or "somebody", self._record(message))

    def _record(self, message: Message) -> Placed:
        return self._stage.book.records[self.numbers[message.name]]


class _Source(ByMessage):
    """The adapter's own source, with the world's client."""

    def __init__(self, stage: Stage, proxy: _Proxy, process: Process) -> None:
        self.name, self.line = process.name, Line()
        #: Offset that the member uses -> number of the record in the book.
        self.numbers: dict[int, int] = {}
        self._stage, self._proxy = stage, proxy
        lease_s = max(1, round(stage.world.message_lease_s))
        super().__init__(
            Wanted(group=GROUP, invisible_s=lease_s),
            lambda topics: ProxyClient(
                proxy,
                stage.scheduler,
                process,
                self.line,
                topics,
                invisible_s=lease_s,
                request_timeout_s=min(stage.world.request_timeout_s, lease_s / 3),
                poll_s=min(_POLL_S, lease_s / 2),
            ),
            process.runtime,
        )

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Implements `LeasedSource.poll`. Some cannot be read, as their world says."""
        batch = super().poll(max_records, timeout_s)
        for each in batch.records:
            self.numbers[each.offset] = self._proxy.numbers[(each.header(UNIQUE_KEY) or b"").decode()]
        unreadable = {
            (each.partition, each.offset): RecordUnreadable(f"{self.identity(each)}: the world says so")
            for each in batch.records
            if self._stage.placed(each).plan.unreadable
        }
        return batch._replace(unreadable=unreadable) if unreadable else batch
