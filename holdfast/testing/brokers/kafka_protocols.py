"""How a Kafka group reaches its target assignment: each member by itself (consumer), or all in rounds (classic)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast.testing.brokers.kafka_answers import Answer, Told

if TYPE_CHECKING:
    from holdfast.records import Partition
    from holdfast.testing.brokers.kafka_answers import Seat
    from holdfast.testing.brokers.kafka_topics import KafkaTopics


#: How long after its return a static member looks for partitions that have no owner.
_UNOWNED_S = 5.0


class Group(Protocol):
    """A group as its rules see it, and change it."""

    broker: KafkaTopics
    seats: dict[int, Seat]
    #: Partition -> owner; partition -> planned owner.
    owners: dict[Partition, Seat]
    target: dict[Partition, Seat]
    generation: int
    #: Consumer protocol before Kafka 4.3: a commit of an older epoch is always refused.
    refuses_old_epochs: bool

    def leave(self, member_id: int) -> None:
        """A member leaves."""
        ...

    def balance(self) -> None:
        """Plan the target assignment."""
        ...

    def stir(self) -> None:
        """Wake all members: there may be news."""
        ...


class Epochs:
    """The consumer protocol (KIP-848). Each member moves by itself: it first reports that it has given up the
    partitions that it must give up; then its epoch rises and it gets the partitions that are free."""

    #: There are no rounds, so no member waits for another.
    until: float | None = None

    def __init__(self, group: Group) -> None:
        self._group = group

    def changed(self) -> None:
        """The target assignment has changed."""
        self._group.generation += 1
        self._group.stir()

    def came(self, seat: Seat) -> None:
        """A member has joined, perhaps to a seat that it had before."""

    def went(self) -> None:
        """A member has left."""
        self._group.stir()

    def beat(self, seat: Seat, owned: frozenset[Partition]) -> Told:
        """Answer a heartbeat with the member's assignment. A member that reports a partition of another owner is
        fenced."""
        group = self._group
        if any(group.owners.get(partition) is not seat for partition in owned):
            group.leave(seat.id)
            return Told(refusal=Answer.FENCED_MEMBER_EPOCH)
        mine = sorted(partition for partition, owner in group.owners.items() if owner is seat)
        leaving = [partition for partition in mine if group.target.get(partition) is not seat]
        for partition in leaving:
            if partition not in owned:
                del group.owners[partition]
                group.stir()
        if not any(partition in owned for partition in leaving):
            for partition, meant in group.target.items():
                if meant is seat and partition not in group.owners:
                    group.owners[partition] = seat
                    seat.since[partition] = group.generation
            seat.epoch = group.generation
        seat.assigned = frozenset(
            partition
            for partition, owner in group.owners.items()
            if owner is seat and group.target.get(partition) is seat
        )
        return Told(seat.epoch, seat.assigned)

    def rejoin(self, seat: Seat, owned: frozenset[Partition]) -> Told:
        """Answer a rejoin as a heartbeat."""
        return self.beat(seat, owned)

    def judge(self, seat: Seat, partition: Partition, epoch: int) -> Answer:
        """Judge a commit of that epoch. Kafka 4.3 accepts an older epoch if the member has owned the partition ever
        since (KIP-1251)."""
        group = self._group
        had = group.owners.get(partition) is seat and seat.since[partition] <= epoch < seat.epoch
        taken = epoch == seat.epoch or (had and not group.refuses_old_epochs)
        return Answer.NO_ERROR if taken else Answer.STALE_MEMBER_EPOCH

    def late(self) -> list[Seat]:
        """No members: there are no rounds."""
        return []


class Rounds:
    """The classic protocols. All members join a round; members that have not joined within the longest of the members'
    poll intervals are removed. Then a generation begins, and each member gets its assignment.

    Eager: a member gives up everything before it joins. Cooperative: a member keeps its partitions, gives up those that
    are planned for others after the round, and a second round assigns them.
    """

    def __init__(self, group: Group, *, eager: bool) -> None:
        self._group, self._eager = group, eager
        self._open = False
        #: When an open round ends without the members that have not joined; None = no round is open.
        self.until: float | None = None

    def changed(self) -> None:
        """The target assignment has changed."""
        self._begin()

    def came(self, seat: Seat) -> None:
        """A member has joined: it owns nothing, and takes part in a round. A static member that returns to its seat
        begins no round, unless one is open.

        Partitions that its former process was giving up when it died have no owner then, until a member joins anew
        (seen on Kafka 4.3.1, cooperative). Our source looks for such partitions a while after its return, and joins
        anew.
        """
        if self._open or not seat.assigned:
            self.rejoin(seat, frozenset())
        elif any(owner is seat and each not in seat.assigned for each, owner in self._group.owners.items()):
            broker = self._group.broker
            broker.after(broker.time, _UNOWNED_S, self._begin)

    def went(self) -> None:
        """A member has left: perhaps the round waited for it alone."""
        self._begin()
        self._end_if_all()

    def beat(self, seat: Seat, owned: frozenset[Partition]) -> Told:
        """Answer a heartbeat: join the open round, or the assignment of this generation."""
        if self._open:
            self._end_if_all()
        if self._open:
            return Told(seat.epoch, None, rejoin=not seat.ready)
        return Told(seat.epoch, seat.assigned)

    def rejoin(self, seat: Seat, owned: frozenset[Partition]) -> Told:
        """Note that the member has joined the round, and owns these partitions."""
        group = self._group
        for partition in [partition for partition, owner in group.owners.items() if owner is seat]:
            if partition not in owned:
                del group.owners[partition]
        seat.owned = owned
        self._begin()
        seat.ready = True
        return self.beat(seat, owned)

    def judge(self, seat: Seat, partition: Partition, epoch: int) -> Answer:
        """Judge a commit of that generation."""
        return Answer.NO_ERROR if epoch == self._group.generation else Answer.ILLEGAL_GENERATION

    def late(self) -> list[Seat]:
        """The members that have not joined the open round."""
        return [seat for seat in self._group.seats.values() if not seat.ready]

    def _begin(self) -> None:
        if self._open:
            return
        self._open = True
        longest = [seat.member.max_poll_interval_s for seat in self._group.seats.values() if seat.deadline is not None]
        self.until = self._group.broker.time + max(longest) if longest else None
        for seat in self._group.seats.values():
            seat.ready = False
        self._group.stir()

    def _end_if_all(self) -> None:
        group = self._group
        if not all(seat.ready for seat in group.seats.values()):
            return
        self._open, self.until = False, None
        group.generation += 1
        group.balance()
        if self._open:
            return  # the topics have changed meanwhile
        for seat in group.seats.values():
            seat.epoch = group.generation
            seat.assigned = frozenset(
                partition
                for partition, meant in group.target.items()
                if meant is seat and group.owners.get(partition, seat) is seat
            )
            group.owners.update(dict.fromkeys(sorted(seat.assigned), seat))
        for seat in list(group.seats.values()):
            seat.member.is_told(seat.id, Told(seat.epoch, seat.assigned))
