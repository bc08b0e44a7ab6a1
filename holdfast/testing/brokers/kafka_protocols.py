"""How a group of Kafka's gets from who has what to who is meant to have it: member by member, or in rounds of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast.testing.brokers.kafka_answers import Answer, Told

if TYPE_CHECKING:
    from holdfast.records import Partition
    from holdfast.testing.brokers.kafka_answers import Seat
    from holdfast.testing.brokers.kafka_topics import KafkaTopics


#: When a static member that has come back looks for partitions that nobody owns.
_UNOWNED_S = 5.0


class Group(Protocol):
    """A group as its rules see it, and change it."""

    broker: KafkaTopics
    seats: dict[int, Seat]
    #: Who has what; and who is meant to have it.
    owners: dict[Partition, Seat]
    target: dict[Partition, Seat]
    generation: int
    #: In the consumer protocol before Kafka 4.3: whatever became of the partition.
    refuses_old_epochs: bool

    def leave(self, member_id: int) -> None:
        """A member goes."""
        ...

    def balance(self) -> None:
        """Plan who is meant to have what."""
        ...

    def stir(self) -> None:
        """There may be news for everybody."""
        ...


class Epochs:
    """The consumer protocol (KIP-848). Each member moves by itself: what it has to give up it has to say that it has
    given up, and only then its epoch rises and it gets what is free."""

    #: Nobody waits for anybody.
    until: float | None = None

    def __init__(self, group: Group) -> None:
        self._group = group

    def changed(self) -> None:
        """The target has changed."""
        self._group.generation += 1
        self._group.stir()

    def came(self, seat: Seat) -> None:
        """A member has come, perhaps to a seat that it had before."""

    def went(self) -> None:
        """A member has gone."""
        self._group.stir()

    def beat(self, seat: Seat, owned: frozenset[Partition]) -> Told:
        """Answer a heartbeat with what the member should have. A member that says to have what is another's is
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
        """A commit of that epoch. Kafka 4.3 takes one of an older epoch while the partition has been the member's since
        (KIP-1251)."""
        group = self._group
        had = group.owners.get(partition) is seat and seat.since[partition] <= epoch < seat.epoch
        taken = epoch == seat.epoch or (had and not group.refuses_old_epochs)
        return Answer.NO_ERROR if taken else Answer.STALE_MEMBER_EPOCH

    def late(self) -> list[Seat]:
        """Nobody."""
        return []


class Rounds:
    """The classic protocol. All members join a round, or are put out when it has waited for the longest of their poll
    intervals; then there is a generation, and each is told what it has in it.

    Eager: a member gives up everything before it joins. Cooperative: it keeps what it has, what is meant for others is
    given up after the round, and a second round gives it to them.
    """

    def __init__(self, group: Group, *, eager: bool) -> None:
        self._group, self._eager = group, eager
        self._open = False
        #: How long an open round waits.
        self.until: float | None = None

    def changed(self) -> None:
        """The target has changed."""
        self._begin()

    def came(self, seat: Seat) -> None:
        """A member has come: it has nothing, and is ready for a round. To a seat of its own it comes without a round,
        unless one is open.

        What the one before was giving up when it died has no owner then, until somebody joins anew (seen on Kafka
        4.3.1, cooperative). Our source looks for that a while after it has come, and does.
        """
        if self._open or not seat.assigned:
            self.rejoin(seat, frozenset())
        elif any(owner is seat and each not in seat.assigned for each, owner in self._group.owners.items()):
            broker = self._group.broker
            broker.after(broker.time, _UNOWNED_S, self._begin)

    def went(self) -> None:
        """A member has gone: perhaps the round waited for it alone."""
        self._begin()
        self._end_if_all()

    def beat(self, seat: Seat, owned: frozenset[Partition]) -> Told:
        """Whether there is a round to join, or else what it has in this generation."""
        if self._open:
            self._end_if_all()
        if self._open:
            return Told(seat.epoch, None, rejoin=not seat.ready)
        return Told(seat.epoch, seat.assigned)

    def rejoin(self, seat: Seat, owned: frozenset[Partition]) -> Told:
        """Note that the member is ready, and has that."""
        group = self._group
        for partition in [partition for partition, owner in group.owners.items() if owner is seat]:
            if partition not in owned:
                del group.owners[partition]
        seat.owned = owned
        self._begin()
        seat.ready = True
        return self.beat(seat, owned)

    def judge(self, seat: Seat, partition: Partition, epoch: int) -> Answer:
        """A commit of that generation."""
        return Answer.NO_ERROR if epoch == self._group.generation else Answer.ILLEGAL_GENERATION

    def late(self) -> list[Seat]:
        """The members that have kept the round waiting for too long."""
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
