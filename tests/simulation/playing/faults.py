"""Faults: faults and acts of people. Each kind is a method of its name, called in the hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.plugin.ports import CommitFate
from tests.simulation.database.server import DatabaseStore
from tests.simulation.playing.faults_broker import BrokerFaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.testing.process import Process
    from tests.simulation.drawing.world import Fault
    from tests.simulation.playing.stage import Stage


#: Time between looks whether all members have left.
_LOOK_S = 0.05


class Faults(BrokerFaults):
    """Runs faults. A kind that the world's broker cannot have does nothing."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._silent_until = 0.0
        self._resetting = False

    def happens(self, fault: Fault) -> None:
        """Run a fault now."""
        if self._resetting or fault.kind in self._stage.ground.without:
            return  # no member is there
        self._stage.say("world", f"{fault.kind} {fault.for_s:.3f} s" if fault.for_s else fault.kind)
        call: Callable[[Fault], None] = getattr(self, f"_{fault.kind}")
        call(fault)

    @property
    def resetting(self) -> bool:
        """Whether the group is being emptied: no member may join now."""
        return self._resetting

    # ---- members
    def _crash(self, fault: Fault) -> None:
        if (member := self._member(fault)) is not None:
            self._stage.say(member.name, "crashes")
            self._stage.gone(member)
            self._later(fault.for_s, self._join_again)

    def _join_again(self) -> None:
        if not (self._stage.ending or self._resetting):
            self._stage.join()

    def _stall(self, fault: Fault) -> None:
        if (member := self._member(fault)) is not None:
            self._stage.say(member.name, f"stands still for {fault.for_s} s")
            member.process.stall(fault.for_s)
            if fault.for_s >= self._stage.world.session_timeout_s / 2:
                self._later(fault.for_s, member.thrown_out)  # the broker may have removed the silent member

    def _term(self, fault: Fault) -> None:
        if (member := self._member(fault)) is not None:
            self._stage.say(member.name, f"is asked to stop{' at once' if fault.count > 1 or member.stops else ''}")
            for at in range(fault.count):
                self._later(at * fault.for_s, member.stop) if at and fault.for_s else member.stop()
            if len(self._stage.living) == 1:
                self._stage.join()

    def _interrupt(self, fault: Fault) -> None:
        if (member := self._member(fault)) is not None:
            for at in range(fault.count):
                self._later(at * fault.for_s, lambda: member.interrupt(fault.place))

    def _join(self, fault: Fault) -> None:
        self._stage.join()

    # ---- broker
    def _lose(self, fault: Fault) -> None:
        if (member := self._member(fault)) is not None:
            self._stage.say(member.name, "loses its partitions")
            member.thrown_out()
            self._stage.ground.lose(member.source)

    def _refuse(self, fault: Fault) -> None:
        for at, partition in enumerate(sorted(self._stage.broker.logs)):
            if at % 2 == fault.member % 2:
                self._stage.group.refuse(partition, *[CommitFate.AGAIN] * fault.count)

    def _letters(self, fault: Fault) -> None:
        self._stage.letters_down = True
        self._later(fault.for_s, self._letters_again)

    def _letters_again(self) -> None:
        self._stage.letters_down = False

    # ---- store
    def _silent(self, fault: Fault) -> None:
        self._stage.judges.store_away(fault.for_s)
        self._stage.store.network.go_silent(hears=True)
        self._speak_after(fault)

    def _deaf(self, fault: Fault) -> None:
        self._stage.judges.store_away(fault.for_s)
        self._stage.store.network.go_silent(hears=False)
        self._speak_after(fault)

    def _slow(self, fault: Fault) -> None:
        self._stage.judges.store_away(fault.for_s)  # calls may take longer than their timeout
        self._stage.store.network.slow(fault.amount)
        self._later(fault.for_s, lambda: self._stage.store.network.slow(0.0))

    def _lossy(self, fault: Fault) -> None:
        self._stage.judges.store_away(fault.for_s)
        each = fault.amount / 3
        self._stage.store.network.lose(calls=each, replies=each, late=each)
        self._later(fault.for_s, self._stage.store.network.lose)

    def _forbid(self, fault: Fault) -> None:
        self._stage.judges.store_away(fault.for_s)
        self._stage.store.network.refuse()
        self._later(fault.for_s, lambda: self._stage.store.network.refuse(""))

    def _failover(self, fault: Fault) -> None:
        judges = self._stage.judges
        # Calls for the same time run in the order in which they were added.
        self._later(fault.for_s, judges.store_forgets)
        self._stage.store.fail_over(fault.for_s)
        self._later(fault.for_s, judges.store_forgot)

    def _empty(self, fault: Fault) -> None:
        self._stage.judges.store_forgets()
        self._stage.store.empty()
        self._stage.judges.store_forgot()

    # ---- a database with effects
    def _unanswered(self, fault: Fault) -> None:
        if isinstance(store := self._stage.store, DatabaseStore):
            self._stage.judges.store_away(0.0)
            store.unanswered, store.not_even_heard = fault.count, bool(fault.place % 2)

    def _conflict(self, fault: Fault) -> None:
        if isinstance(store := self._stage.store, DatabaseStore):
            store.conflicts = fault.count

    def _freeze(self, fault: Fault) -> None:
        def frozen(process: Process, _: Callable[[], None]) -> None:
            self._stage.say(process.name, f"stands still for {fault.for_s} s with a transaction open")
            for member in self._stage.living:
                if member.process is process:
                    process.stall(fault.for_s)
                    self._later(fault.for_s, member.thrown_out)

        if isinstance(store := self._stage.store, DatabaseStore):
            store.when_open.append(frozen)

    def _terminate(self, fault: Fault) -> None:
        if isinstance(store := self._stage.store, DatabaseStore):
            self._stage.judges.store_away(0.0)
            store.when_open.append(lambda _, end: end())

    # ---- topics, and people
    def _grow(self, fault: Fault) -> None:
        if (place := self._place(fault)) is None:
            return
        topic = place.topic
        partitions = sum(each.topic == topic for each in self._stage.broker.logs)
        self._stage.broker.create(topic, partitions + fault.count)

    def _markers(self, fault: Fault) -> None:
        if (place := self._place(fault)) is not None:
            self._stage.broker.leave_out(place.topic, place.number, fault.count)

    def _compact(self, fault: Fault) -> None:
        if (place := self._place(fault)) is None:
            return
        log = self._stage.broker.logs[place]
        gone = set(log.offsets[fault.count % 2 :: 2])
        self._stage.broker.compact(place.topic, place.number, [each for each in log.offsets if each not in gone])
        records = self._stage.book.logs.get(self._stage.log(place), [])
        self._stage.judges.removed([each for each in records if each.offset in gone])

    def _expire(self, fault: Fault) -> None:
        if (place := self._place(fault)) is None:
            return
        log = self._stage.broker.logs[place]
        first = log.start + round(fault.amount * (log.end - log.start))
        self._stage.say("world", f"{place} begins at {first}: retention has deleted what lay before")
        self._stage.broker.expire(place.topic, place.number, first)
        records = self._stage.book.logs.get(self._stage.log(place), [])
        self._stage.judges.removed([each for each in records if each.offset < first])

    def _reset(self, fault: Fault) -> None:
        self._all_leave(lambda: self._set_back(fault))

    def _forget(self, fault: Fault) -> None:
        self._all_leave(lambda: self._expire_offsets(fault))

    def _all_leave(self, then: Callable[[], None]) -> None:
        self._resetting = True
        for member in self._stage.living:
            member.stop()
        self._when_empty(then)

    def _when_empty(self, then: Callable[[], None]) -> None:
        """Call `then` as soon as the group has no members and there is a topic."""
        stage = self._stage
        stage.broker.settle()  # the sessions of killed members may have ended
        if stage.living or stage.group.members or not stage.broker.logs:
            self._later(_LOOK_S, lambda: self._when_empty(then))
            return
        stage.judge_commits()  # a late commit may have come just before
        then()

    def _expire_offsets(self, fault: Fault) -> None:
        stage = self._stage
        for place in stage.broker.logs:
            if stage.ground.is_foreign(place):  # a reset that no member has adopted
                stage.judges.unwanted(stage.log(place), stage.group.offset(place) or 0)
            stage.group.set_offset(place, None)
        stage.say("world", "the group's offsets have expired")
        self._later(fault.for_s, self._all_come_back)

    def _set_back(self, fault: Fault) -> None:
        stage, place = self._stage, self._place(fault)
        assert place is not None  # `_when_empty` has waited for a topic
        offset = int(fault.amount * stage.broker.logs[place].end)
        before = stage.group.offset(place) or 0
        stage.say("world", f"the offset of {place} is set to {offset}, from {before}")
        stage.group.set_offset(place, offset)
        stage.judges.reset(stage.log(place), offset, back=offset < before)
        stage.left_before_reset = len(stage.members)
        self._all_come_back()

    def _all_come_back(self) -> None:
        self._resetting = False
        for _ in range(self._stage.world.members):
            self._stage.join()

    # ---- inside
    def _speak_after(self, fault: Fault) -> None:
        until = self._silent_until = max(self._silent_until, self._stage.now + fault.for_s)
        self._later(fault.for_s, lambda: self._stage.store.network.speak() if until == self._silent_until else None)
