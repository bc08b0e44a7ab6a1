"""Counts what happened to each order, from two lists only: what the broker took, and what the ledger saw."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from examples.lab.orders import SLOW_ORDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.lab.ledger import Entry
    from examples.lab.orders import Produced

# holdfast tells its store within 5 ms; the rest is for the way there, on a busy machine.
_MOMENT_S = 0.05

_Order = tuple[int, int]  # partition, offset: what the order is at the broker


@dataclass(slots=True)
class Execution:
    """One time that a handler ran. `end` is infinite where the handler never ended."""

    order: _Order
    key: str
    member: str
    pid: int
    start: float
    end: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """An event of the script, as it came to pass for one group."""

    name: str
    at: float
    graceful: bool
    #: Who was killed or stopped, if anybody.
    victim: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What an event cost."""

    name: str
    graceful: bool
    #: Executions of orders that had been begun before, from this event until the next.
    repeated: int
    #: From the event until no more than half a second's worth of orders waited, for good (until the next event).
    recover_s: float
    longest_pause_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The counts for one consumer."""

    produced: int
    handled: int
    #: Never done, and never to be: a later order of the same partition is done.
    lost: int
    #: Not done when the run ended, and nothing after it in its partition is: it waits.
    left: int
    repeated: int
    at_the_same_time: int
    longest_pause_s: float
    #: The longest of the events' but the start's; infinite: orders waited when the run ended.
    recover_s: float
    #: Of `repeated`: the order was in the hands of the killed or stopped process at that moment.
    from_hands: int
    by_event: tuple[Recovery, ...]
    #: For the picture: (time, orders waiting), each repetition, and the last time that somebody was at a lost order.
    lag: tuple[tuple[float, int], ...] = field(repr=False)
    repetitions: tuple[Execution, ...] = field(repr=False)
    losses: tuple[Execution, ...] = field(repr=False)
    #: The first time that somebody was at the slow order.
    slow: tuple[Execution, ...] = field(repr=False)

    @property
    def repeated_gracefully(self) -> int:
        """Repetitions after events in which every member could finish its work."""
        return sum(event.repeated for event in self.by_event if event.graceful)

    @property
    def broken(self) -> bool:
        """Whether a promise of holdfast does not hold here."""
        return bool(self.lost or self.repeated_gracefully)


def executions(entries: Sequence[Entry]) -> list[Execution]:
    """Pair the ledger's lines, in the order of their starts."""
    found: list[Execution] = []
    opened: dict[tuple[int, int, int], Execution] = {}
    for entry in entries:
        place = (entry.pid, entry.partition, entry.offset)
        if entry.starts:
            run = Execution((entry.partition, entry.offset), entry.key, entry.member, entry.pid, entry.at)
            opened[place] = run
            found.append(run)
        elif place in opened:
            opened.pop(place).end = entry.at
    found.sort(key=lambda run: run.start)
    return found


def judge(
    produced: Sequence[Produced], entries: Sequence[Entry], marks: Sequence[Mark], *, per_second: float, until: float
) -> Verdict:
    """The counts for one consumer whose run ended at `until`."""
    runs = executions(entries)
    by_order: dict[_Order, list[Execution]] = defaultdict(list)
    for run in runs:
        by_order[run.order].append(run)
    orders = {(order.partition, order.offset) for order in produced}
    done_at = {order: end for order, tries in by_order.items() if (end := min(run.end for run in tries)) < inf}
    again = sorted((run for tries in by_order.values() for run in tries[1:]), key=lambda run: run.start)
    last_done: dict[int, int] = {}
    for partition, offset in done_at:
        last_done[partition] = max(offset, last_done.get(partition, -1))
    open_still = orders - done_at.keys()
    lost = {order for order in open_still if order[1] < last_done.get(order[0], -1)}

    lag = _lag(produced, done_at)
    pauses = _pauses(produced, runs, until)
    calm = max(1, round(per_second / 2))
    events = []
    for mark, following in zip(marks, [*(mark.at for mark in marks[1:]), until], strict=True):
        events.append(
            Recovery(
                name=mark.name,
                graceful=mark.graceful,
                repeated=sum(mark.at <= run.start < following for run in again),
                recover_s=_recovered(lag, mark.at, following, calm) - mark.at,
                longest_pause_s=max((long for began, long in pauses if mark.at <= began + long < following), default=0),
            )
        )
    return Verdict(
        produced=len(orders),
        handled=len(done_at),
        lost=len(lost),
        left=len(open_still) - len(lost),
        repeated=len(again),
        at_the_same_time=sum(_overlap(tries) for tries in by_order.values()),
        longest_pause_s=max((long for _, long in pauses), default=0.0),
        # The start apart: how fast a machine starts processes, with a backlog waiting, is nothing that a group does.
        recover_s=inf if len(open_still) > calm else max((event.recover_s for event in events[1:]), default=0.0),
        from_hands=sum(any(_in_hand(by_order[run.order], run, mark) for mark in marks) for run in again),
        by_event=tuple(events),
        lag=tuple(lag),
        repetitions=tuple(again),
        losses=tuple(by_order[order][-1] for order in sorted(lost) if by_order[order]),
        slow=tuple(tries[0] for tries in by_order.values() if tries[0].key == SLOW_ORDER),
    )


def _lag(produced: Sequence[Produced], done_at: dict[_Order, float]) -> list[tuple[float, int]]:
    """How many orders were waiting or in work, at each moment that changed it."""
    arrivals = sorted((order.at, 1) for order in produced)
    departures = sorted((end, -1) for end in done_at.values())
    waiting, curve = 0, []
    for at, change in heapq.merge(arrivals, departures):
        waiting += change
        curve.append((at, waiting))
    return curve


def _recovered(lag: Sequence[tuple[float, int]], since: float, following: float, calm: int) -> float:
    """The last moment before `following` at which more than `calm` orders waited; `since` if there was none."""
    first = bisect_left(lag, (since, -1))
    last = bisect_right(lag, (following, -1))
    for position in range(last - 1, first - 1, -1):
        if lag[position][1] > calm:
            return lag[position + 1][0] if position + 1 < last else following
    return since


def _pauses(produced: Sequence[Produced], runs: Sequence[Execution], until: float) -> list[tuple[float, float]]:
    """(begin, length) of the times in which a partition had orders that nobody had begun, and none was begun.

    Counted from a partition's first order in work, so that the processes' own start is no pause. An order that is
    handled once more counts as work here: that it is not progress shows in the lag.
    """
    starts: dict[int, list[float]] = defaultdict(list)
    first_start: dict[_Order, float] = {}
    for run in runs:  # in the order of their starts
        starts[run.order[0]].append(run.start)
        first_start.setdefault(run.order, run.start)
    arrivals: dict[int, list[Produced]] = defaultdict(list)
    for order in produced:
        arrivals[order.partition].append(order)
    found = []
    for partition, began in starts.items():
        queue = sorted(arrivals[partition], key=lambda order: order.offset)
        position = 0
        for moment, following in zip(began, [*began[1:], until], strict=True):
            while position < len(queue) and first_start.get((partition, queue[position].offset), until) <= moment:
                position += 1
            if position < len(queue):
                waiting_since = max(moment, queue[position].at)
                if following > waiting_since:
                    found.append((waiting_since, following - waiting_since))
    return found


def _overlap(tries: Sequence[Execution]) -> int:
    """How many of these executions of one order began while another process was still at it."""
    return sum(
        any(earlier.pid != run.pid and earlier.end > run.start and earlier.end < inf for earlier in tries[:at])
        for at, run in enumerate(tries)
    )


def _in_hand(tries: Sequence[Execution], again: Execution, mark: Mark) -> bool:
    """Whether the victim was at this order when it was killed or stopped, or had ended with it a moment before.

    Ended a moment before counts as in hand: the store had not been told yet. And so does begun a moment after, for a
    signal takes a while to arrive.
    """
    return mark.at <= again.start and any(
        run is not again
        and run.member == mark.victim
        and run.start <= mark.at + _MOMENT_S
        and run.end >= mark.at - _MOMENT_S
        for run in tries
    )
