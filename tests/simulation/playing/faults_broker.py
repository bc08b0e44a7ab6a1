"""Faults of topics, of the broker, and of the line between a member and the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.records import Partition
    from holdfast.testing.brokers.agenda import Line
    from tests.simulation.drawing.world import Fault
    from tests.simulation.playing.stage import Actor, Stage

#: Bits of `Fault.count` of "cut": what is lost between a member and the broker.
_REQUESTS, _ANSWERS = 1, 2
#: `Fault.count` of "foreign": the offset goes back.
_BACK = 1


class BrokerFaults:
    """Each is a method of its name, called in the hub."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    # ---- topics
    def _remake(self, fault: Fault) -> None:
        stage, place = self._stage, self._place(fault)
        if place is None:
            return
        topic = place.topic
        partitions = len(stage.broker.of(topic))
        for partition in stage.broker.of(topic):
            stage.judges.removed(stage.book.logs.get(stage.log(partition), []))
        stage.say("world", f"{topic} is deleted")
        if fault.for_s:
            stage.broker.remove(topic)
            self._later(fault.for_s, lambda: self._make(topic, partitions))
        else:
            stage.broker.delete(topic)
            self._made(topic)

    def _make(self, topic: str, partitions: int) -> None:
        self._stage.broker.create(topic, partitions)
        self._made(topic)

    def _made(self, topic: str) -> None:
        self._stage.ids[topic] = self._stage.broker.id_of(topic)
        self._stage.say("world", f"{topic} is made again, with id {self._stage.ids[topic]}")

    def _leaderless(self, fault: Fault) -> None:
        broker, place = self._stage.broker, self._place(fault)
        if place is None:
            return
        log = broker.logs[place]
        broker.lead(place.topic, place.number, led=False)

        def led_again() -> None:
            if broker.logs.get(place) is log:  # else the topic was made again
                broker.lead(place.topic, place.number, led=True)

        self._later(fault.for_s, led_again)

    def _resend(self, fault: Fault) -> None:
        if (place := self._place(fault)) is not None:
            for offset in self._stage.broker.logs[place].offsets[-fault.count :]:
                self._stage.send_again(place, offset)

    def _foreign(self, fault: Fault) -> None:
        stage, place = self._stage, self._place(fault)
        if place is None:
            return
        log, at = stage.broker.logs[place], stage.ground.committed(place) or 0
        further = round(fault.amount * (log.end - at))
        offset = at - round(fault.amount * at) if fault.count == _BACK else at + further
        if offset != at:
            stage.say("world", f"another program commits {offset} of {place}, where {at} was committed")
            stage.ground.commit_elsewhere(place, offset)

    # ---- between a member and the broker
    def _cut(self, fault: Fault) -> None:
        if (line := self._line(fault)) is not None:
            line.hears, line.speaks = not fault.count & _REQUESTS, not fault.count & _ANSWERS

    def _late(self, fault: Fault) -> None:
        if (line := self._line(fault)) is not None:
            line.delay_s = fault.amount

    def _twice(self, fault: Fault) -> None:
        if (line := self._line(fault)) is not None:
            line.twice_s = fault.amount

    def _line(self, fault: Fault) -> Line | None:
        """The line between that member and the broker; it is mended when the fault ends."""
        member, world = self._member(fault), self._stage.world
        line: Line | None = getattr(member.source, "line", None) if member is not None else None
        if member is None or line is None:
            return None
        # The broker may have removed the member, which learns that only with the broker's next answer.
        member.cut_off(fault.for_s + 2 * fault.amount + world.session_timeout_s + world.request_timeout_s)
        self._later(fault.for_s, line.mend)
        return line

    # ---- for all of them
    def _place(self, fault: Fault) -> Partition | None:
        """The fault's partition; None = there is none now."""
        places = sorted(self._stage.broker.logs)
        return places[fault.place % len(places)] if places else None

    def _member(self, fault: Fault) -> Actor | None:
        now = self._stage.scheduler.now
        able = [each for each in self._stage.living if each.process.stalled_until < now]
        return able[fault.member % len(able)] if able else None

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        scheduler = self._stage.scheduler
        scheduler.at(scheduler.now + seconds, call)
