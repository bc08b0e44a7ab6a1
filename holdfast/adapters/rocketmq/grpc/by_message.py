"""ByMessage: a source of messages with leases, by any client. Independent of gRPC and of any package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.grpc.leases import Leases
from holdfast.adapters.rocketmq.grpc.receipts import Taken
from holdfast.adapters.rocketmq.grpc.receiving import Receiving
from holdfast.adapters.rocketmq.names import check_subscribed
from holdfast.adapters.rocketmq.remoting.messages import POLL_BYTES, UNIQUE_KEY
from holdfast.adapters.rocketmq.unique_keys import identity_of
from holdfast.errors import NotAuthorised, RecordUnreadable, SettingError, SourceUnavailable, UnknownTopic
from holdfast.plugin.folding import EVERY_S
from holdfast.plugin.ports import NOTHING, Batch
from holdfast.records import Partition, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from holdfast.adapters.rocketmq.grpc.config import Wanted
    from holdfast.adapters.rocketmq.grpc.delivery import Delivery, Proxy
    from holdfast.records import Fence
    from holdfast.runtime import Runtime
    from holdfast.timing import Deadline

_CLOSE_STEP_S = 0.05


class ByMessage:
    """A LeasedSource (see `plugin.ports`). Threads of its own poll, so that no call blocks the loop.

    Args:
        config: which messages to take, and for how long.
        connect: makes the client for a list of topics.
        runtime: clock and threads.
    """

    def __init__(self, config: Wanted, connect: Callable[[Collection[str]], Proxy], runtime: Runtime) -> None:
        self._wanted, self._connect, self._runtime = config, connect, runtime
        self._client: Proxy | None = None
        self._fence: Fence
        self._leases: Leases
        self._receiving: Receiving
        self._told_at = -EVERY_S

    @property
    def group(self) -> str:
        """The consumer group's name."""
        return self._wanted.group

    @property
    def lease_s(self) -> float:
        """How long a message stays hidden after its delivery or renewal, in seconds."""
        return float(self._wanted.invisible_s)

    @property
    def in_group(self) -> bool:
        """Whether the proxy has answered a poll: this user had the permissions then."""
        return self._client is not None and self._receiving.let_in

    def open(self, topics: Collection[str], fence: Fence, deadline: Deadline) -> None:
        """Connect and begin to poll. Raises SourceError, SettingError (patterns; tags of other topics)."""
        for topic in topics:
            if topic.startswith("^"):
                raise SettingError("topics", topic, "RocketMQ's proxy knows no patterns: name the topics")
        check_subscribed("tags", self._wanted.tags, topics)
        self._fence = fence
        self._client = self._connect(topics)
        self._leases = Leases(self._client, self._wanted.invisible_s, self._runtime)
        self._receiving = Receiving(self._client, self._leases, self._wanted, self._runtime)
        self._client.open(deadline)
        self.admitted(topics, deadline)
        self._receiving.tend()

    def admitted(self, topics: Collection[str], deadline: Deadline) -> None:
        """A hook before the first poll. Raises SourceError, StoreError: this process may not consume."""

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Return the messages that have arrived. If there are none, raises the SourceError that polls met, every 30 s
        while it lasts."""
        leases = self._leases
        self._receiving.wanted()
        leases.repeat()
        taken = self._take(max_records)
        if not taken and timeout_s > 0:
            leases.wait(timeout_s)
            taken = self._take(max_records)
        if not taken:
            self._tell_trouble()
            return NOTHING
        return Batch(
            [
                Record(
                    Partition(delivery.topic, 0),
                    number,
                    delivery.key,
                    delivery.body,
                    delivery.headers,
                    delivery.born_ms,
                    self._fence,
                )
                for number, delivery in taken
            ],
            unreadable={
                (Partition(delivery.topic, 0), number): _unreadable(delivery, delivery.fault)
                for number, delivery in taken
                if delivery.fault is not None
            },
        )

    def _take(self, at_most: int) -> list[Taken]:
        """Take at most this many messages, unpacked one by one until their bodies reach `POLL_BYTES`."""
        found: list[Taken] = []
        room = POLL_BYTES
        while len(found) < at_most and room > 0 and (some := self._leases.take(1)):
            [(number, packed)] = some
            found.append(Taken(number, delivery := packed.unpacked()))
            # An unknown number of bytes was unpacked before a fault.
            room = 0 if packed.packed and delivery.fault is not None else room - len(delivery.body)
        return found

    def identity(self, record: Record) -> str:
        """The message's identity: UNIQ_KEY and the checksum of the body."""
        return identity_of((record.header(UNIQUE_KEY) or b"").decode(), record.value or b"")

    def extend(self, records: Sequence[Record]) -> None:
        """Begin to renew the leases of these records and of waiting messages that are due; poll brokers that have got
        the topics since."""
        self._leases.renew(record.offset for record in records)
        self._leases.repeat()
        self._receiving.tend()

    def acknowledge(self, records: Sequence[Record]) -> Sequence[Record]:
        """Begin to acknowledge. Returns as many records as acknowledgements came too late since the last call."""
        self._leases.done(record.offset for record in records)
        return records[: self._leases.late(len(records))]

    def release(self, records: Iterable[Record]) -> None:
        """Begin to give records back: the broker delivers them again after about four seconds, its minimum."""
        self._leases.back(record.offset for record in records)

    def drain(self) -> None:
        """End polls that wait; give back waiting messages, and those that other polls under way still bring."""
        self._receiving.stop()
        self._leases.drain()

    def close(self, deadline: Deadline) -> None:
        """Wait for polls under way, until they have waited for a while, and for unanswered acknowledgements; close the
        client. Idempotent."""
        client, self._client = self._client, None
        if client is None:
            return
        self.drain()
        while not (self._receiving.over and self._leases.settled) and not deadline.passed:
            self._receiving.stop()
            self._leases.repeat()
            self._leases.wait(deadline.left_s(_CLOSE_STEP_S))
        client.close()
        self._receiving.join(1.0)

    def _tell_trouble(self) -> None:
        trouble = self._receiving.trouble()
        if trouble is None:
            return
        now = self._runtime.now()
        # A name server may not know a topic yet. A permission that was there before is missing only for a while.
        passes = isinstance(trouble, UnknownTopic) or (isinstance(trouble, NotAuthorised) and self._receiving.let_in)
        if not trouble.retriable and not passes:
            raise trouble
        if now - self._told_at >= EVERY_S:
            self._told_at = now
            raise SourceUnavailable(str(trouble)) from trouble


def _unreadable(delivery: Delivery, fault: Exception) -> RecordUnreadable:
    error = RecordUnreadable(f"message {delivery.message_id} of {delivery.topic} cannot be read: {fault}")
    error.__cause__ = fault
    return error
