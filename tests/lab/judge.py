"""The verdict on a cell, from its evidence alone. Nothing here knows a consumer, holdfast's neither."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from tests.harness.group import referee
from tests.harness.group.ledger import Entry, Where

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.evidence import Evidence, Life, Sent

_TOPIC = "t"
#: How many repeats the end of a process excuses: what it had in hand, however much that is.
_ANY_NUMBER = 1 << 30
#: Right before a harm comes a burst: it is neither the usual stream, nor what the harm before it has left.
_BURST_S = 1.0


class Pause(NamedTuple):
    """A partition had records to start, and started none."""

    partition: int
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@dataclass(frozen=True)
class Verdict:
    """Counts and times of one cell. Times in seconds."""

    evidence: Evidence

    @cached_property
    def runs(self) -> list[referee.Execution]:
        """Each time that a handler ran."""
        return referee.executions(
            Entry(_ns(each.at), each.member, each.pid, _where(each), "", "", each.what, 0)
            for each in self.evidence.ledger
        )

    @cached_property
    def records(self) -> int:
        """How many the broker has acknowledged."""
        return len(self.evidence.sent)

    @cached_property
    def open(self) -> list[Where]:
        """Records that nobody has ended."""
        ended = {each.where for each in self.runs if each.outcome == "end"}
        return [where for each in self.evidence.sent if (where := _where(each)) not in ended]

    @cached_property
    def lost(self) -> list[Where]:
        """Those of them that the group's committed offset has passed: nobody will ever be given them again."""
        return [each for each in self.open if each.offset < self.evidence.committed.get(each.partition, 0)]

    @property
    def left(self) -> int:
        """Those that wait: the group would go on with them."""
        return len(self.open) - len(self.lost)

    @cached_property
    def again(self) -> list[referee.Execution]:
        """Handlers that were started for a record which had been started before."""
        return referee.repeats(self.runs)

    @cached_property
    def not_in_hand(self) -> int:
        """Those of them for which no killed, frozen or dead process accounts: it did not have the record in hand."""
        return len(referee.unexcused(self.again, self.runs, self._deaths()))

    @cached_property
    def effects_twice(self) -> int:
        """Effects that happened once more. A handler's effect happens where it ends, if the consumer has no database of
        its own to put it in."""
        effects = self.evidence.effects
        if effects is None:
            effects = tuple((each.where.partition, each.where.offset) for each in self.runs if each.outcome == "end")
        return sum(count - 1 for count in Counter(effects).values())

    @cached_property
    def at_once(self) -> int:
        """Records that two processes had in hand at the same time."""
        gone = [
            referee.Death(each.member, each.pid, _ns(each.ended), 0)
            for each in self.evidence.lives
            if each.how != "left"
        ]
        pairs = referee.concurrent(self.runs, gone)
        return len({first.where for first, second in pairs if first.pid != second.pid})

    @cached_property
    def pauses(self) -> list[Pause]:
        """Of each partition, from the cell's beginning until it is over. What runs again is work too; for what is lost
        nobody waits."""
        by_partition = defaultdict(list)
        for run in self.runs:
            by_partition[run.where.partition].append(run)
        first = {run.where: run.start_ns / 1e9 for run in reversed(self.runs)}
        found = []
        for partition, runs in by_partition.items():
            queue = sorted(self._given[partition], key=lambda each: each.offset)
            starts = [run.start_ns / 1e9 for run in runs]
            position = 0
            for began, ended in pairwise([*starts, max(self.evidence.over, starts[-1])]):
                while position < len(queue) and first.get(_where(queue[position]), inf) <= began:
                    position += 1
                if position < len(queue) and (since := max(0.0, began, queue[position].at)) < ended:
                    found.append(Pause(partition, since, ended))
        return found

    @cached_property
    def longest_pause_s(self) -> float:
        return max((each.seconds for each in self.pauses), default=0.0)

    @cached_property
    def recovery_s(self) -> float:
        """From a harm (where a server was away: from its return) until no more records were open than come in a second,
        for good, or until the next one. The longest; infinite: more were open when the cell was over."""
        healed = [each.at for each in self.evidence.marks if each.kind == "heal"]
        harms = healed or [each.at for each in self.evidence.marks if each.kind == "harm"]
        return max((self._recovered(*each) - each[0] for each in pairwise([*harms, inf])), default=0.0)

    @cached_property
    def memberships_lost(self) -> int:
        """How often the broker had put a member out of its group whose process was there and had not been asked to
        leave."""
        return sum(self._absences(life) for life in self.evidence.lives)

    @property
    def died(self) -> int:
        """Processes that ended by themselves: they were started again."""
        return sum(each.how == "died" for each in self.evidence.lives)

    @property
    def stuck(self) -> int:
        """Processes that had not left seconds after SIGTERM."""
        return sum(each.how == "stuck" for each in self.evidence.lives)

    @cached_property
    def cpu_ms(self) -> float:
        """Processor time of all members for each record that they ran, milliseconds."""
        return sum(each.cpu_s for each in self.evidence.lives) / max(1, len(self.runs)) * 1000

    # -- inside --------------------------------------------------------------------------------------------------------

    def _deaths(self) -> Iterator[referee.Death]:
        for each in self.evidence.lives:
            if each.how in {"killed", "died"}:
                yield referee.Death(each.member, each.pid, _ns(each.ended), _ANY_NUMBER)
            for began, _ in each.frozen:
                yield referee.Death(each.member, each.pid, _ns(began), _ANY_NUMBER)

    @cached_property
    def _given(self) -> dict[int, list[Sent]]:
        """By partitions what was sent and is not lost."""
        lost, found = set(self.lost), defaultdict(list)
        for each in self.evidence.sent:
            if _where(each) not in lost:
                found[each.partition].append(each)
        return found

    def _recovered(self, harm: float, following: float) -> float:
        """The last moment between the two at which more was open than comes in a second."""
        recovered = harm
        for (at, open_now), (later, _) in pairwise([*self._open_over_time, (inf, 0)]):
            if open_now > self._calm and at < following - _BURST_S and later > harm:
                recovered = min(later, following - _BURST_S)
        return recovered

    @cached_property
    def _calm(self) -> float:
        """How many records the stream brings in a second, bursts apart: what came before anything was done."""
        harmed = min((each.at for each in self.evidence.marks), default=self.evidence.over)
        before = [each.at for each in self.evidence.sent if each.at < harmed - _BURST_S]
        return max(1.0, len(before) / max(1.0, harmed - _BURST_S - before[0])) if before else 1.0

    @cached_property
    def _open_over_time(self) -> list[tuple[float, int]]:
        """How many records were sent and neither ended nor lost, at each moment that changed it."""
        done: dict[Where, float] = {}
        for run in self.runs:
            if run.outcome == "end" and run.end_ns is not None:
                done[run.where] = min(run.end_ns / 1e9, done.get(run.where, inf))
        changes = [(each.at, 1) for sent in self._given.values() for each in sent]
        changes += [(at, -1) for at in done.values()]
        waiting, curve = 0, []
        for at, change in sorted(changes):
            waiting += change
            curve.append((at, waiting))
        return curve

    def _absences(self, life: Life) -> int:
        """Times that it was in the group, and then was not, before it was asked to leave."""
        asked = min(
            (each.at for each in self.evidence.marks if each.label == f"{life.member} leaves" and each.at > life.began),
            default=self.evidence.over,
        )
        until = min(asked, life.ended)
        inside = [life.member in each.members for each in self.evidence.looks if life.began < each.at < until]
        return sum(before and not after for before, after in pairwise(inside))


def _where(place: object) -> Where:
    return Where(_TOPIC, place.partition, place.offset)  # type: ignore[attr-defined]


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
