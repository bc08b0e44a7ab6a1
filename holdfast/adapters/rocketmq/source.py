"""RocketMQSource: a partitioned source that pulls by itself and keeps its group in Redis.

RocketMQ's own clients do not report in time that they lose a queue, and brokers accept every commit from every client.
Therefore the coordinator manages the group: its plan says which member should have a queue, and the queue's position in
the claim store is the lease that says which member has it. One thread owns this object; results that arrive on other
threads are kept under `_changed` until the next poll.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Unpack

from holdfast.adapters.rocketmq.dead_letter import OWN, RocketMQDeadLetters
from holdfast.adapters.rocketmq.joining import Seat
from holdfast.adapters.rocketmq.logs import Logs
from holdfast.adapters.rocketmq.moves import Moves
from holdfast.adapters.rocketmq.names import client_id, position_name, retry_topic
from holdfast.adapters.rocketmq.offsets import Offsets
from holdfast.adapters.rocketmq.prefetch import Prefetch
from holdfast.adapters.rocketmq.remoting import codes
from holdfast.adapters.rocketmq.send_back import BrokerRetries, comes_again
from holdfast.adapters.rocketmq.settings import PullSettings, check_claims
from holdfast.adapters.rocketmq.starting_offsets import StartingOffsets
from holdfast.adapters.rocketmq.topics import Topics
from holdfast.adapters.rocketmq.troubles import Troubles
from holdfast.adapters.rocketmq.unique_keys import message_of
from holdfast.adapters.rocketmq.watch import Watch
from holdfast.errors import SourceError, SourceUnavailable, StoreError
from holdfast.plugin.ports import NOTHING, Batch, Committed
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.adapters.rocketmq.reading import Moved
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
        #: Guards results of other threads, and is notified of them. Only RemotingClient's locks are taken inside it.
        self._changed = threading.Condition()
        self._client = settings.connect(client_id(settings.instance_name), self._noticed)
        self._logs = Logs(self._client, self._changed, group, coordinator)
        self._topics = Topics(self._client, group, settings.subscriptions)
        self._prefetch = Prefetch(self._client, self._changed, settings, self._logs, self._topics.born_in)
        self._logs.on_proved = self._proved
        self._offsets = Offsets(self._client, group, self._changed)
        self._starting_offsets = StartingOffsets(self._offsets, settings)
        self._place = Seat(coordinator, settings, self._client, self._wake)
        self._watch = Watch(
            self._client,
            coordinator,
            settings,
            topics=self._topics,
            place=self._place,
            offsets=self._offsets,
            logs=self._logs,
            changed=self._changed,
        )
        self._moves = Moves(self._prefetch, self._offsets, self._logs)
        self._troubles = Troubles(
            self._prefetch, self._logs, self._watch, self._offsets, self._topics, changed=self._changed
        )
        self._assigned: set[Partition] = set()
        #: Assigned queues for which the engine has given no starting offset yet.
        self._held: set[Partition] = set()
        self._handing_over = self._open = self._closed = False
        self._listener: RebalanceListener
        self._owners: Mapping[Partition, Fence] = {}
        self.identity = message_of if settings.dedup == "message" else None
        self.retry_topic = retry_topic(group)
        most = settings.max_reconsume_times
        self.retries = partial(comes_again, self.retry_topic, most) if settings.retry == "broker" else None
        # `Pulls` continues at the next offset of the last answer, so every gap is one of the log.
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
            self._settings.connect, self.group, self._settings.max_reconsume_times, letters, self._moved_elsewhere
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
        self._place.join(self._topics.text, self._topics.queues, deadline)
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
        return self._place.in_group

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
            self._offsets.wait(Deadline(deadline.left_s(_LAST_COMMIT_S)))
            self._offsets.forget(self._assigned)
            self._note_logs()
        self._place.leave(deadline)
        if self._open:
            with suppress(SourceError):  # brokers also notice the end of the connection
                self._client.unregister(self.group, Deadline(deadline.left_s(_CLOSE_S)))
        self._client.close(_CLOSE_S)

    # ---- polling
    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Return records, and call the listener for queues that are assigned or revoked. Raises SourceError."""
        self._troubles.raise_one()
        self._tell()
        if self._follow_plan():
            return NOTHING  # after a rebalance the engine may want fewer records than `max_records`
        self._logs.step()
        self._prefetch.look()
        batch = self._prefetch.take(max_records, self._owners)
        if batch.records or batch.ends or timeout_s <= 0:
            return batch
        with self._changed:
            self._changed.wait_for(self._has_news, _LEASE_LOOK_S if self._held else timeout_s)
        self._tell()
        return self._prefetch.take(max_records, self._owners)

    def _has_news(self) -> bool:
        prefetch = self._prefetch
        return bool(
            prefetch.has_some
            or prefetch.moved
            or prefetch.troubles
            or self._moves.resets
            or self._logs.has_news
            or self._watch.alarms
            or self._offsets.has_news
            or self._place.has_news
        )

    def _tell(self) -> None:
        for queue, offset, fate in self._offsets.fates():
            self._listener.committed({queue: offset}, {queue: fate})
        self._moves.begin_others(self._listener)
        for told in (self._logs.moved, self._prefetch.moved):
            while told:
                moved = told.popleft()
                if moved.queue in self._assigned:
                    self._moves.follow(moved, self._listener)
        self._moves.follow_resets(self._assigned, self._listener)
        while self._offsets.overwritten:
            self._listener.overwritten(*self._offsets.overwritten.popleft())

    # ---- the plan
    def _follow_plan(self) -> bool:
        """Give up queues that the plan gives to others, then take those that it gives to this member. Returns whether
        anything changed."""
        change = self._place.step(self._assigned, self._topics)
        if change is None:
            return False
        if change.lost:
            self._forget(change.gone)
            self._listener.lost(change.gone)
            self._assigned.clear()
            self._logs.end(change.gone)
            self._offsets.forget(change.gone)  # from now on other members commit these queues
            return True
        if change.gone:
            self._forget(change.gone)
            self._handing_over = True
            try:
                # A commit under way may be a queue's last: then the engine makes none, and waits for none.
                self._offsets.wait(Deadline(_LAST_COMMIT_S), change.gone)
                self._listener.revoked(change.gone)
            finally:
                self._handing_over = False
            self._note_logs()
            self._logs.end(change.gone)
            self._assigned.difference_update(change.gone)
            self._offsets.forget(change.gone)
        if change.came:
            self._assigned.update(change.came)
            for queue, start in self._listener.assigned(change.came).items():
                subscription = self._topics.subscription(queue.topic)
                if start.hold or start.offset is None:
                    self._held.add(queue)
                else:
                    self._logs.begin(queue, start.offset)
                self._prefetch.add(queue, subscription, start.offset, paused=start.hold)
        return bool(change.gone or change.came)

    def _forget(self, queues: Collection[Partition]) -> None:
        self._prefetch.remove(queues)
        self._held.difference_update(queues)
        self._moves.forget(queues)

    def _note_logs(self) -> None:
        """Store the marks of the logs for the next owner. A failure is logged: the owner can do without them."""
        if not self._place.lost:
            try:
                self._logs.note()
            except StoreError as error:
                _log.info("which logs were read is not noted: %s", error)

    # ---- on other threads
    def _moved_elsewhere(self, moved: Moved) -> None:
        with self._changed:
            self._prefetch.moved.append(moved)
            self._changed.notify_all()

    def _proved(self, queue: Partition) -> None:
        self._prefetch.go_on(queue)
        self._watch.note_soon()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _noticed(self, notice: Notice) -> None:
        self._watch.noticed(notice)
        if notice.code == codes.Told.RESET_CLIENT_OFFSET and notice.fields.get("group") == self.group:
            self._moves.hear(notice)
            self._wake()

    # ---- positions
    def position_names(
        self,
        partitions: Sequence[Partition],
        deadline: Deadline,  # noqa: ARG002 - the port's signature
    ) -> Mapping[Partition, str]:
        """Names from group, topic, broker and number. `Logs` detects a topic that was deleted and created again."""
        return {partition: position_name(self.group, partition) for partition in partitions}

    def committed(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, Committed | None]:
        """The group's offsets at the brokers; None: there is none. Brokers do not say which member has committed them.
        Raises SourceError, also if only the offset of one queue cannot be read: an error must not look like None."""
        found = self._offsets.committed_of_some(partitions, deadline)
        self._logs.orphaned(found)
        return {
            queue: None if offset is None else Committed(offset, ours=True, marked=False)
            for queue, offset in found.items()
        }

    def first_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The starting offsets, as consume_from_where says. Retry topics start at their beginning: their messages are
        the group's own failures."""
        found = self._starting_offsets.of_some(partitions, deadline)
        self._logs.new(found)
        return found

    def last_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The ends of the logs, by a request to the masters."""
        return self._offsets.ends(partitions, deadline)

    def look_at_ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int] | None:
        """The ends of the logs, as `last_offsets`, without waiting. None: not answered yet; call again."""
        return self._offsets.look_at_ends(partitions)

    def end_offsets(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """The ends of the logs, from the last answers to pulls."""
        known = self._prefetch.ends()
        return {queue: known[queue] for queue in partitions if queue in known}

    def start_offsets(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """For queues in which messages had expired before they were read: the first offset, as the master reported it
        then."""
        return {queue: self._moves.starts[queue] for queue in partitions if queue in self._moves.starts}

    def set_back(self, partition: Partition, offset: int) -> None:
        """Commit it: offsets have no marks here."""
        self.commit({partition: offset})

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Begin to commit. Queues that this member has lost are left out. A hand-over waits for the brokers' answers,
        so that the next owner finds these offsets."""
        lost = self._place.lost
        for queue, offset in offsets.items():
            fence = self._owners.get(queue)
            if lost or fence is None or fence.cancelled:
                self._offsets.refuse(queue, offset)
            else:
                self._offsets.commit(queue, offset)
                if self._logs.done(queue, offset):
                    self._watch.note_soon()
        if self._handing_over and not self._offsets.wait(Deadline(_LAST_COMMIT_S), offsets):
            _log.warning(
                "the broker has not answered the last commit of %s: the position in the store counts", sorted(offsets)
            )

    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from this offset. Raises SourceUnavailable: the queue is not assigned."""
        self._moves.starts.pop(partition, None)
        self._logs.begin(partition, offset)
        if not self._prefetch.seek(partition, offset):
            self._logs.end([partition])
            raise SourceUnavailable(f"{partition} is not assigned: nothing to seek in")
        self._held.discard(partition)

    def pause(self, partitions: Collection[Partition]) -> None:
        """Stop pulling these queues; messages that have arrived are kept, and not delivered."""
        self._prefetch.pause(partitions)

    def resume(self, partitions: Collection[Partition]) -> None:
        """Pull and deliver these queues again."""
        self._prefetch.resume(partitions)
