"""MemoryGroup: a Kafka group at its coordinator: members' seats, owners, the target assignment, committed offsets."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from holdfast.plugin.ports import CommitFate
from holdfast.testing.brokers.kafka_answers import FATES, Answer, Seat, Told
from holdfast.testing.brokers.kafka_protocols import Epochs, Rounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.records import Partition
    from holdfast.testing.brokers.kafka_answers import GroupMember
    from holdfast.testing.brokers.kafka_topics import KafkaTopics

Rebalancing = Literal["eager", "cooperative", "consumer"]
_M = TypeVar("_M", bound="GroupMember")


class Attempt(NamedTuple):
    """A commit that reached the broker."""

    #: The source that sent it.
    member: object
    partition: Partition
    offset: int
    fate: CommitFate
    #: The topic id that the commit carries; 0 = none.
    topic_id: int = 0
    #: The second arrival of a commit that arrives twice.
    again: bool = False


class Kept(NamedTuple):
    """A committed offset, whether it carries holdfast's mark, and the mark's topic id and store."""

    offset: int
    ours: bool
    topic_id: int
    store: str

    @property
    def metadata(self) -> str:
        """The metadata as Kafka keeps it."""
        return f"holdfast:1:{self.offset}:{self.topic_id or ''}:{self.store}" if self.ours else ""


class CommitRequest(NamedTuple):
    """A commit as it was when it was sent."""

    member: GroupMember
    member_id: int
    epoch: int
    offsets: Mapping[Partition, int]
    #: Partition -> topic id, as the member last asked for it.
    topic_ids: Mapping[Partition, int]
    store: str
    #: False: as a tool that resets the group commits.
    marked: bool = True
    #: The second arrival of a commit that arrives twice.
    again: bool = False


class MemoryGroup:
    """A group: its members, the owner and the planned owner of each partition, committed offsets. Guarded by the
    broker's lock."""

    def __init__(self, broker: KafkaTopics, name: str, protocol: Rebalancing) -> None:
        self.broker, self.name, self.protocol = broker, name, protocol
        self.seats: dict[int, Seat] = {}
        self.owners: dict[Partition, Seat] = {}
        self.target: dict[Partition, Seat] = {}
        self.generation = 0
        self.committed: dict[Partition, Kept] = {}
        self.attempts: list[Attempt] = []
        #: Consumer protocol before Kafka 4.3: a commit of an older epoch is always refused.
        self.refuses_old_epochs = False
        self.rules = Epochs(self) if protocol == "consumer" else Rounds(self, eager=protocol == "eager")
        self._script: dict[Partition, GroupMember] | None = None
        self._refusals: dict[Partition, deque[Answer | CommitFate]] = defaultdict(deque)

    # ---- for tests, and for the users of a world
    def aim(self, target: Mapping[_M, Iterable[Partition]]) -> None:
        """Fix the target assignment: joins and leaves do not change it any more."""
        with self.broker.changed:
            self._script = {partition: member for member, own in target.items() for partition in own}
            self.balance()

    def lose(self, member: GroupMember, *partitions: Partition) -> None:
        """Take these partitions (all, if none is named) from a member, which learns of it in its next poll."""
        with self.broker.changed:
            gone = list(partitions or self.of(member))
            for partition in gone:
                self.owners.pop(partition)
            member.loses(gone)
            self.rules.changed()
            self.broker.changed.notify_all()

    def set_offset(self, partition: Partition, offset: int | None, *, ours: bool = False) -> None:
        """Set an offset as a reset does, or (`ours`) as a commit with our mark; None = the offset expires."""
        with self.broker.changed:
            if offset is None:
                self.committed.pop(partition, None)
            else:
                self.committed[partition] = Kept(offset, ours, self.broker.id_of(partition.topic), "")

    def reset(self, partition: Partition, offset: int) -> bool:
        """Reset the offset as Kafka's tool does. False = refused: the group has members."""
        self.broker.settle()
        with self.broker.changed:
            if not self.seats:
                self.set_offset(partition, offset)
            return not self.seats

    def refuse(self, partition: Partition, *answers: Answer | CommitFate) -> None:
        """Answer the next commits of that partition with these, one each."""
        with self.broker.changed:
            self._refusals[partition].extend(answers)

    def of(self, member: GroupMember) -> list[Partition]:
        """The partitions that the member owns, as the broker sees it."""
        with self.broker.changed:
            return sorted(partition for partition, seat in self.owners.items() if seat.member is member)

    def offset(self, partition: Partition) -> int | None:
        """The committed offset; None = none."""
        with self.broker.changed:
            found = self.committed.get(partition)
            return found and found.offset

    @property
    def members(self) -> list[GroupMember]:
        """The members that have a seat, alive or not."""
        return [seat.member for seat in self.seats.values()]

    # ---- requests
    def join(self, member: GroupMember, member_id: int, session_s: float | None) -> Told:
        """A member joins, or joins again under its static name. Idempotent."""
        if member_id in self.seats:
            return self.rules.beat(self.seats[member_id], frozenset())
        seat = self._named(member.static_id)
        if seat is not None:
            if self.protocol == "consumer" and not seat.away:
                return Told(refusal=Answer.UNRELEASED_INSTANCE_ID)
            del self.seats[seat.id]
            seat.member, seat.id, seat.away = member, member_id, False
        else:
            seat = Seat(member, member_id, member.static_id)
        self.seats[member_id] = seat
        self._heard(seat, session_s)
        self.rules.came(seat)
        self.balance()
        return self.rules.beat(seat, frozenset())

    def beat(self, member_id: int, static_id: str | None, owned: frozenset[Partition], session_s: float | None) -> Told:
        """A heartbeat: the member lives, and reports the partitions that it owns."""
        seat = self.seats.get(member_id)
        if seat is None:
            return Told(refusal=self._unknown(static_id))
        self._heard(seat, session_s)
        return self.rules.beat(seat, owned)

    def rejoin(self, member_id: int, static_id: str | None, owned: frozenset[Partition]) -> Told:
        """A member of a classic group joins the next generation."""
        seat = self.seats.get(member_id)
        return Told(refusal=self._unknown(static_id)) if seat is None else self.rules.rejoin(seat, owned)

    def leave(self, member_id: int, *, comes_back: bool = False, session_s: float | None = None) -> None:
        """A member leaves. A static member that comes back keeps its seat for one session."""
        seat = self.seats.get(member_id)
        if seat is not None and comes_back and session_s is not None:
            seat.away = True
            self._heard(seat, session_s)
        elif seat is not None:
            self._remove(seat)

    def commit_all(self, sent: CommitRequest) -> dict[Partition, CommitFate]:
        """Judge a commit by its member id and its epoch. A partition that the member does not own is committed all the
        same (seen on Kafka 4.3.1 in all three protocols)."""
        seat = self.seats.get(sent.member_id)
        fates = {}
        for partition, offset in sent.offsets.items():
            if seat is None:
                answer = self._unknown(sent.member.static_id)
            else:
                answer = self.rules.judge(seat, partition, sent.epoch)
            if answer is not Answer.NO_ERROR or partition in sent.member.lost:
                fate = FATES[answer if answer is not Answer.NO_ERROR else Answer.UNKNOWN_MEMBER_ID]
                self.attempts.append(Attempt(sent.member, partition, offset, fate))
            else:
                fate = self.commit(sent, partition)
            fates[partition] = fate
        self.broker.changed.notify_all()
        return fates

    def commit(self, sent: CommitRequest, partition: Partition) -> CommitFate:
        """Commit one partition's offset for a member whose id and epoch are valid."""
        fate, offset = CommitFate.DONE, sent.offsets[partition]
        if self._refusals[partition]:
            said = self._refusals[partition].popleft()
            fate = FATES[said] if isinstance(said, Answer) else said
        elif partition not in self.broker.logs:
            fate = FATES[Answer.UNKNOWN_TOPIC_OR_PART]
        else:
            kept = Kept(offset, sent.marked, sent.topic_ids.get(partition, 0), sent.store)
            self.committed[partition] = kept
            for watcher in self.broker.watchers:
                watcher.on_commit(partition, offset, sent.member, kept.metadata)
        topic_id = sent.topic_ids.get(partition, 0)
        self.attempts.append(Attempt(sent.member, partition, offset, fate, topic_id, sent.again))
        return fate

    # ---- time
    def next_due(self) -> float | None:
        """When the next session, or the wait for a round, ends. Called with the lock."""
        soonest = self.rules.until
        for seat in self.seats.values():
            due = seat.deadline
            if due is not None and (soonest is None or due < soonest):
                soonest = due
        return soonest

    def expire(self, now: float) -> None:
        """Remove members whose session has ended. Called with the lock."""
        for seat in list(self.seats.values()):
            if seat.deadline is not None and seat.deadline <= now:
                self._remove(seat)
        if self.rules.until is not None and self.rules.until <= now:
            for seat in self.rules.late():
                self._remove(seat)

    # ---- changes
    def balance(self) -> None:
        """Plan the target assignment: as even as possible, with the fewest moves. Called with the lock."""
        wanted = sorted(p for p in self.broker.logs if any(seat.member.wants(p.topic) for seat in self.seats.values()))
        target: dict[Partition, Seat] = {}
        if self._script is not None:
            seats = {seat.member: seat for seat in self.seats.values()}
            target = {partition: seats[member] for partition, member in self._script.items() if member in seats}
        else:
            loads = dict.fromkeys(self.seats.values(), 0)
            fair, more = divmod(len(wanted), max(1, len(loads)))
            for partition in wanted:  # a member keeps a partition while it has less than its share
                seat = self.target.get(partition)
                if seat is not None and seat.member.wants(partition.topic) and loads[seat] < fair + (more > 0):
                    more -= loads[seat] == fair
                    target[partition] = seat
                    loads[seat] += 1
            for partition in wanted:
                able = [seat for seat in loads if seat.member.wants(partition.topic)]
                if able and partition not in target:
                    target[partition] = min(able, key=loads.__getitem__)
                    loads[target[partition]] += 1
        if target != self.target:
            self.target = target
            self.rules.changed()
        self.broker.changed.notify_all()

    def grew(self, partition: Partition) -> None:
        """Wake the members that read this partition. Called with the lock."""
        for seat in self.seats.values():
            if partition in seat.member.readers:
                seat.member.stir()

    def forget(self, topic: str) -> None:
        """Drop the committed offsets of a deleted topic. Called with the lock."""
        for partition in [partition for partition in self.committed if partition.topic == topic]:
            del self.committed[partition]

    def stir(self) -> None:
        """Wake all members: there may be news. Called with the lock."""
        for seat in self.seats.values():
            seat.member.stir()

    def _heard(self, seat: Seat, session_s: float | None) -> None:
        seat.deadline = None if session_s is None else self.broker.time + session_s

    def _named(self, static_id: str | None) -> Seat | None:
        if static_id is None:
            return None
        return next((seat for seat in self.seats.values() if seat.static_id == static_id), None)

    def _unknown(self, static_id: str | None) -> Answer:
        """The refusal of an unknown member id: another process has its static name, or it is no member."""
        return Answer.UNKNOWN_MEMBER_ID if self._named(static_id) is None else Answer.FENCED_INSTANCE_ID

    def _remove(self, seat: Seat) -> None:
        del self.seats[seat.id]
        for partition in [partition for partition, owner in self.owners.items() if owner is seat]:
            del self.owners[partition]
        self.target = {partition: other for partition, other in self.target.items() if other is not seat}
        self.rules.went()
        self.balance()
