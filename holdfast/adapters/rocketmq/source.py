"""RocketMQSource: a partitioned source that pulls by itself and keeps its group in Redis.

RocketMQ's own clients do not report in time that they lose a queue, and brokers accept every commit from every client.
Therefore the coordinator manages the group: its plan says which member should have a queue, and the queue's position in
the claim store is the lease that says which member has it. One thread owns this object; what arrives on other threads
is an event in its `Inbox` until the next poll. A `Queue` is one assigned queue.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Unpack

from holdfast.adapters.rocketmq.commits import Commits
from holdfast.adapters.rocketmq.dead_letter import OWN, RocketMQDeadLetters
from holdfast.adapters.rocketmq.inbox import Alarm, CommitAnswered, Inbox, Overwritten, Proved, Trouble
from holdfast.adapters.rocketmq.joining import Seat
from holdfast.adapters.rocketmq.moves import Moves
from holdfast.adapters.rocketmq.names import client_id, position_name, retry_topic
from holdfast.adapters.rocketmq.offsets import Offsets, StartingOffsets
from holdfast.adapters.rocketmq.queue import Shared
from holdfast.adapters.rocketmq.queues import Queues
from holdfast.adapters.rocketmq.remoting import codes
from holdfast.adapters.rocketmq.send_back import BrokerRetries, comes_again
from holdfast.adapters.rocketmq.settings import PullSettings, check_claims
from holdfast.adapters.rocketmq.topics import Topics
from holdfast.adapters.rocketmq.troubles import Troubles
from holdfast.adapters.rocketmq.unique_keys import message_of
from holdfast.adapters.rocketmq.watch import Watch
from holdfast.errors import SourceError, SourceUnavailable, StoreError
from holdfast.plugin.ports import NOTHING, Batch, Committed
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.adapters.rocketmq.remoting import Notice
    from holdfast.adapters.rocketmq.settings import PullOptions
    from holdfast.dedup.claims import ClaimStore
    from holdfast.dedup.coordinator import Coordinator
    from holdfast.plugin.ports import RebalanceListener
    from holdfast.plugin.settings import Settings
    from holdfast.records import Fence, Partition

_log = logging.getLogger("holdfast.rocketmq")

#: How long a hand-over waits for the broker's answer to the last commit. The positions in the store hold without it.
_LAST_COMMIT_S = 2.0
#: The longest poll while a queue waits for its lease.
_LEASE_LOOK_S = 0.02
_CLOSE_S = 1.0


class RocketMQSource:
    """Consumes a group's share of topics' queues, handing queues over without repeats.

    Args:
        namesrv: name servers, "host:port;host:port".
        group: the consumer group.
        coordinator: keeps the group's members and plan: RedisCoordinator(store), with the app's own store.
        options: see `PullSettings`.

    One thread owns it: the app's.

    Raises:
        SettingError: names the setting, its value and the remedy.
    """

    def __init__(self, namesrv: str, group: str, *, coordinator: Coordinator, **options: Unpack[PullOptions]) -> None:
        self._settings = settings = PullSettings(namesrv=namesrv, group=group, **options)
        self._coordinator = coordinator
        self._inbox = Inbox()
        self._client = settings.connect(client_id(settings.instance_name), self._noticed)
        self._topics = Topics(self._client, group, settings.subscriptions)
        self._offsets = Offsets(self._client, group, self._inbox.changed)
        self._starting_offsets = StartingOffsets(self._offsets, settings)
        self._commits = Commits(self._client, group, self._inbox, self._offsets)
        shared = Shared(self._client, self._inbox, settings)
        self._queues = Queues(shared, self._topics, self._commits, coordinator)
        self._seat = Seat(coordinator, settings, self._client, self._inbox)
        self._watch = Watch(
            self._client,
            coordinator,
            settings,
            topics=self._topics,
            seat=self._seat,
            queues=self._queues,
            inbox=self._inbox,
        )
        self._moves = Moves(self._queues, self._offsets, self._inbox)
        self._troubles = Troubles(self._queues, self._topics, shared)
        self._handing_over = self._open = self._closed = False
        self._listener: RebalanceListener
        self._owners: Mapping[Partition, Fence] = {}
        self.identity = message_of if settings.dedup == "message" else None
        self.retry_topic = retry_topic(group)
        most = settings.max_reconsume_times
        self.retries = partial(comes_again, self.retry_topic, most) if settings.retry == "broker" else None
        # `PullWindow` continues at the next offset of the last answer, so every gap is one of the log.
        self.unroutable_letters, self.gaps_are_the_logs = OWN, True

    def __repr__(self) -> str:
        return f"RocketMQSource({self._settings!r})"

    # ---- properties that the engine reads before the start
    @property
    def group(self) -> str:
        """The consumer group's name."""
        return self._settings.group

    @property
    def protocol(self) -> str:
        """The protocol's name, "cooperative": queues move one by one, and the others are read on."""
        return "cooperative"

    @property
    def session_timeout_s(self) -> float | None:
        """The lease of a member, and of the queues that it holds in the store, in seconds."""
        return self._settings.lease_s

    @property
    def max_poll_interval_s(self) -> float:
        """The longest time between two polls, in seconds, as configured."""
        return self._settings.max_poll_interval_s

    def brings_again(self, topic: str) -> bool:
        """Whether it is the group's retry topic, or one of its POP retry topics. The latter have messages that were
        given to a LeasedSource or another gRPC client and not acknowledged."""
        return self._topics.brings_again(topic)

    def check_settings(self, settings: Settings) -> None:
        """Check the app's settings against the source's. Raises SettingError."""
        self._settings.check_app(settings)

    def check_claims(self, claims: ClaimStore | None) -> None:
        """Check that the app uses the coordinator's store. Raises SettingError."""
        check_claims(claims, self._coordinator)

    def dead_letters(self) -> BrokerRetries:
        """Make the sender of dead letters, to the same brokers with the same credentials. With retry="broker" it also
        sends failed messages back."""
        letters = RocketMQDeadLetters(self._settings.connect, self.group)
        return BrokerRetries(
            self._settings.connect, self.group, self._settings.max_reconsume_times, letters, self._inbox
        )

    # ---- the start and the end
    def reach(self, topics: Collection[str], deadline: Deadline) -> None:
        """Connect to the name servers and look for the topics. Raises SourceError; UnknownTopic names all missing."""
        self._topics.choose(topics)
        self._watch.reach(deadline)

    def open(
        self,
        topics: Collection[str],
        listener: RebalanceListener,
        owners: Mapping[Partition, Fence],
        deadline: Deadline,
    ) -> None:
        """Connect to name servers and brokers, check the group's members, and join. Raises SourceError, StoreError."""
        self._listener, self._owners = listener, owners
        self.reach(topics, deadline)
        self._offsets.check_access(self._topics.queues, deadline)
        self._watch.check_group(deadline)
        self._watch.insist(lambda: self._starting_offsets.look(self._topics.queues, deadline), deadline)
        self._watch.insist(lambda: self._watch.refuse_foreign_members(deadline), deadline)
        # Join the coordinator's group before the first heartbeat: a client that brokers list and that is no member
        # counts as a foreign member.
        self._seat.join(self._topics.text, self._topics.queues, deadline)
        self._open = True
        self._watch.introduce(deadline)
        self._watch.look_at_routes(deadline)  # the first heartbeat creates the group's retry topic
        self._watch.start()

    @property
    def member_name(self) -> str:
        """The name of this member for brokers and tools."""
        return self._client.client_id

    @property
    def in_group(self) -> bool:
        """Whether the coordinator's plan has this member; it may have no queues."""
        return self._seat.in_group

    def subscribe(self, topics: Collection[str]) -> None:
        """Not supported. Raises SourceError: all members of a group must subscribe to the same topics."""
        raise SourceError(
            f"a RocketMQ group subscribes alike in all its members: to read {sorted(topics)} instead, change the "
            f"handlers and start all members anew, or use another group"
        )

    def close(self, deadline: Deadline, *, leave: bool = False) -> None:  # noqa: ARG002 - the port's signature
        """Leave the group: other members get the queues at once. The caller has committed and released them before."""
        if self._closed:
            return
        self._closed = True
        self._watch.stop(_CLOSE_S)
        if self._open:  # an error may have ended the engine's own wait for these commits
            self._commits.wait(Deadline(deadline.left_s(_LAST_COMMIT_S)))
            self._store_marks()
            self._queues.let_go(list(self._queues))
        self._seat.leave(deadline)
        if self._open:
            with suppress(SourceError):  # brokers also notice the end of the connection
                self._client.unregister(self.group, Deadline(deadline.left_s(_CLOSE_S)))
        self._client.close(_CLOSE_S)

    # ---- polling
    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Return records, and call the listener for queues that are assigned or revoked. Raises SourceError."""
        self._follow_events()
        self._troubles.raise_one()
        if self._follow_plan():
            return NOTHING  # after a rebalance the engine may want fewer records than `max_records`
        self._queues.prove()
        self._queues.pull_idle()
        batch = self._queues.take(max_records, self._owners)
        if batch.records or batch.ends or timeout_s <= 0:
            return batch
        with self._inbox.changed:
            wait_s = _LEASE_LOOK_S if self._queues.wait_for_start else timeout_s
            self._inbox.changed.wait_for(self._has_news, wait_s)
        self._follow_events()
        return self._queues.take(max_records, self._owners)

    def _has_news(self) -> bool:
        return bool(self._inbox or self._queues.has_some or self._seat.has_news)

    def _follow_events(self) -> None:
        """Act on what other threads have posted, in order of arrival."""
        listener = self._listener
        self._moves.begin_round()
        while (event := self._inbox.take()) is not None:
            match event:
                case CommitAnswered(queue, offset, fate):
                    listener.committed({queue: offset}, {queue: fate})
                case Overwritten(queue, offset):
                    listener.overwritten(queue, offset)
                case Proved():
                    self._watch.note_soon()
                case Trouble():
                    self._troubles.add(event)
                    self._watch.broker_was_away()
                case Alarm():
                    self._troubles.add(event)
                case _:
                    self._moves.follow(event, listener)

    # ---- the plan
    def _follow_plan(self) -> bool:
        """Give up queues that the plan gives to others, then take those that it gives to this member. Returns whether
        anything changed."""
        change = self._seat.step(self._queues, self._topics)
        if change is None:
            return False
        self._queues.stop(change.gone)
        self._moves.forget(change.gone)
        if change.lost:
            self._listener.lost(change.gone)
            self._queues.let_go(change.gone)  # from now on other members commit these queues
            return True
        if change.gone:
            self._handing_over = True
            try:
                # A commit under way may be a queue's last: then the engine makes none, and waits for none.
                self._commits.wait(Deadline(_LAST_COMMIT_S), change.gone)
                self._listener.revoked(change.gone)
            finally:
                self._handing_over = False
            self._store_marks()
            self._queues.let_go(change.gone)
        if change.came:
            self._queues.assign(change.came)
            for queue, start in self._listener.assigned(change.came).items():
                if start.hold:
                    self._queues[queue].pause()
                elif start.offset is not None:
                    self._queues[queue].seek(start.offset)
        return bool(change.gone or change.came)

    def _store_marks(self) -> None:
        """Store the marks of the logs for the next owner. A failure is logged: the owner can do without them."""
        if not self._seat.lost:
            try:
                self._queues.store_marks()
            except StoreError as error:
                _log.info("which logs were read is not noted: %s", error)

    # ---- on other threads
    def _noticed(self, notice: Notice) -> None:
        self._watch.noticed(notice)
        if notice.code == codes.FromBroker.RESET_CLIENT_OFFSET and notice.fields.get("group") == self.group:
            self._moves.hear(notice)

    # ---- positions
    def position_names(
        self,
        partitions: Sequence[Partition],
        deadline: Deadline,  # noqa: ARG002 - the port's signature
    ) -> Mapping[Partition, str]:
        """Names from group, topic, broker and number. `Log` detects a topic that was deleted and created again."""
        return {partition: position_name(self.group, partition) for partition in partitions}

    def committed(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, Committed | None]:
        """The group's offsets at the brokers; None: there is none. Brokers do not say which member has committed them.
        Raises SourceError, also if only the offset of one queue cannot be read: an error must not look like None."""
        found = self._offsets.committed_of_some(partitions, deadline)
        for queue in self._queues.some(found):
            queue.taken_over(found[queue.partition])
        return {
            queue: None if offset is None else Committed(offset, ours=True, marked=False)
            for queue, offset in found.items()
        }

    def first_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The starting offsets, as consume_from_where says. Retry topics start at their beginning: their messages are
        the group's own failures."""
        found = self._starting_offsets.of_some(partitions, deadline)
        for queue in self._queues.some(found):
            queue.orphan = False  # the group begins there: that it has no offset is no reason for doubt
        return found

    def last_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The ends of the logs, by a request to the masters."""
        return self._offsets.ends(partitions, deadline)

    def look_at_ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int] | None:
        """The ends of the logs, as `last_offsets`, without waiting. None: not answered yet; call again."""
        return self._offsets.look_at_ends(partitions)

    def end_offsets(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """The ends of the logs, from the last answers to pulls."""
        known = {queue.partition: queue.end for queue in self._queues.some(partitions)}
        return {partition: end for partition, end in known.items() if end is not None}

    def start_offsets(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """For queues in which messages had expired before they were read: the first offset, as the master reported it
        then."""
        known = {queue.partition: queue.start for queue in self._queues.some(partitions)}
        return {partition: start for partition, start in known.items() if start is not None}

    def set_back(self, partition: Partition, offset: int) -> None:
        """Commit it: offsets have no marks here."""
        self.commit({partition: offset})

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Begin to commit. Queues that this member has lost are left out. A hand-over waits for the brokers' answers,
        so that the next owner finds these offsets."""
        lost = self._seat.lost
        for partition, offset in offsets.items():
            queue, fence = self._queues.get(partition), self._owners.get(partition)
            if lost or queue is None or fence is None or fence.cancelled:
                self._commits.refuse(partition, offset)
            elif queue.commit(offset):
                self._watch.note_soon()
        if self._handing_over and not self._commits.wait(Deadline(_LAST_COMMIT_S), offsets):
            _log.warning(
                "the broker has not answered the last commit of %s: the position in the store counts", sorted(offsets)
            )

    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from this offset. Raises SourceUnavailable: the queue is not assigned."""
        queue = self._queues.get(partition)
        if queue is None or not queue.seek(offset):
            raise SourceUnavailable(f"{partition} is not assigned: nothing to seek in")

    def pause(self, partitions: Collection[Partition]) -> None:
        """Stop pulling these queues; messages that have arrived are kept, and not delivered."""
        for queue in self._queues.some(partitions):
            queue.pause()

    def resume(self, partitions: Collection[Partition]) -> None:
        """Pull and deliver these queues again."""
        for queue in self._queues.some(partitions):
            queue.resume()
