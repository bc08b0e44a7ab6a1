"""The referee: pure functions over what the ledger says and what the broker has. They know nothing of holdfast.

A *repeat* is an execution of a record that comes after another one which did not fail: retries after a failure are no
repeats. A repeat is *excused* where a member that died, or that stalled past its session, had the record in hand then.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tests.harness.group.ledger import Entry, What, Where

_FOREVER = 1 << 62
#: A mark is sent 5 ms late at most by promise. Under a backlog its answer was seen to take more than a quarter of a
#: second on a busy machine: how many may be in hand is bounded, and that is judged too.
IN_HAND_NS = 1_000_000_000


class Execution(NamedTuple):
    """One run of a handler. Without an outcome: it never ended."""

    where: Where
    member: str
    pid: int
    lane: str
    key: str
    start_ns: int
    end_ns: int | None
    outcome: What | None
    epoch: int


class Produced(NamedTuple):
    """A record that the broker acknowledged."""

    where: Where
    lane: str
    key: str
    at_ns: int


class Death(NamedTuple):
    """A member that was killed, or stopped past its session, at that time. `repeats_at_most`: P3's bound.

    `until_ns`: not dead, but out of reach from that time until then: it went on with what it had, unheard. 0 = dead.
    """

    member: str
    pid: int
    at_ns: int
    repeats_at_most: int
    until_ns: int = 0


class Sample(NamedTuple):
    """The committed offsets of a topic as they were at some time *before* `at_ns`."""

    at_ns: int
    topic: str
    committed: Mapping[int, int]


def executions(entries: Iterable[Entry]) -> list[Execution]:
    """Runs of handlers, by their start. Raises ValueError where an end has no start: the ledger is broken then."""
    done: list[Execution] = []
    running: dict[tuple[int, Where], Execution] = {}
    for each in entries:
        name = (each.pid, each.where)
        if each.what == "start":
            if name in running:  # the same process runs a record twice at once: the first one's end is not known
                done.append(running[name])
            running[name] = Execution(
                each.where, each.member, each.pid, each.lane, each.key, each.at_ns, None, None, each.epoch
            )
        elif name in running:
            done.append(running.pop(name)._replace(end_ns=each.at_ns, outcome=each.what))
        else:
            msg = f"an end without a start: {each}"
            raise ValueError(msg)
    return sorted([*done, *running.values()], key=lambda each: each.start_ns)


def lost(produced: Iterable[Produced], ran: Iterable[Execution], given_up: Collection[str] = ()) -> list[Produced]:
    """Records of which no execution ended. `given_up`: business keys that may fail for good (into the dead letter), or
    never end."""
    ran = list(ran)
    ended = {each.where for each in ran if each.outcome == "end"}
    failed = {each.where for each in ran if each.outcome != "end" and each.key in given_up}
    return [each for each in produced if each.where not in ended and each.where not in failed]


def lost_keys(produced: Iterable[Produced], ran: Iterable[Execution], given_up: Collection[str] = ()) -> set[str]:
    """Business keys of which no execution ended."""
    return {each.key for each in produced} - {each.key for each in ran if each.outcome == "end"} - set(given_up)


def _repeats(groups: Iterable[Sequence[Execution]]) -> list[Execution]:
    again: list[Execution] = []
    for runs in groups:
        again += [later for earlier, later in pairwise(runs) if earlier.outcome != "fail"]
    return sorted(again, key=lambda each: each.start_ns)


def repeats(ran: Iterable[Execution]) -> list[Execution]:
    """Executions of a record that had been started before and had not failed."""
    by_record: dict[Where, list[Execution]] = defaultdict(list)
    for each in ran:
        by_record[each.where].append(each)
    return _repeats(by_record.values())


def key_repeats(ran: Iterable[Execution]) -> list[Execution]:
    """The same by business key: also two records of one key that both ran."""
    by_key: dict[str, list[Execution]] = defaultdict(list)
    for each in ran:
        by_key[each.key].append(each)
    return _repeats(by_key.values())


def in_hand(ran: Iterable[Execution], death: Death) -> list[Execution]:
    """What the member had started before it died, and that had not ended long before.

    Who was stopped may have been caught between the fence, or the return of `poll`, and the ledger: that record is
    noted once the process goes on. One record, since a fence that is broken lets more than one through.
    """
    mine = sorted((each for each in ran if each.pid == death.pid), key=lambda each: each.start_ns)
    began = [each for each in mine if each.start_ns <= max(death.at_ns, death.until_ns)]
    caught = mine[len(began) : len(began) + 1]
    return [each for each in began if each.end_ns is None or each.end_ns >= death.at_ns - IN_HAND_NS] + caught


def unexcused(
    again: Iterable[Execution], ran: Sequence[Execution], deaths: Iterable[Death], *, by_key: bool = False
) -> list[Execution]:
    """Repeats for which no death accounts: each death excuses one more execution of each record (or business key) in
    hand, begun after it, and no more than its bound in all."""

    def name(each: Execution) -> Where | str:
        return each.key if by_key else each.where

    left = list(again)
    for death in deaths:
        hands, budget = {name(each) for each in in_hand(ran, death)}, death.repeats_at_most
        still: list[Execution] = []
        for each in left:
            if budget > 0 and name(each) in hands and each.start_ns > death.at_ns:
                hands.discard(name(each))
                budget -= 1
            else:
                still.append(each)
        left = still
    return left


def _ends(ran: Iterable[Execution], deaths: Iterable[Death]) -> list[tuple[int, int, Execution]]:
    """(start, end, execution); what a killed member ran ended with it, at the latest."""
    died = {each.pid: each.at_ns for each in deaths}
    return sorted((each.start_ns, each.end_ns or died.get(each.pid, _FOREVER), each) for each in ran)


def concurrent(ran: Iterable[Execution], deaths: Iterable[Death] = ()) -> list[tuple[Execution, Execution]]:
    """Pairs of executions of one record that overlap in time."""
    by_record: dict[Where, list[tuple[int, int, Execution]]] = defaultdict(list)
    for start, end, each in _ends(ran, deaths):
        by_record[each.where].append((start, end, each))
    return [(a[2], b[2]) for runs in by_record.values() for a, b in pairwise(runs) if b[0] < a[1]]


def disorder(ran: Iterable[Execution], deaths: Iterable[Death] = ()) -> list[tuple[Execution, Execution]]:
    """Pairs of one partition and lane where the later offset started first, or before the earlier one had ended.

    Judged by each record's first execution: a repeat is counted elsewhere.
    """
    lanes: dict[tuple[str, int, str], dict[int, tuple[int, int, Execution]]] = defaultdict(dict)
    for start, end, each in _ends(ran, deaths):
        lane = lanes[(each.where.topic, each.where.partition, each.lane)]
        lane.setdefault(each.where.offset, (start, end, each))
    wrong = []
    for lane in lanes.values():
        in_order = [lane[offset] for offset in sorted(lane)]
        wrong += [(a[2], b[2]) for a, b in pairwise(in_order) if b[0] < a[0] or b[0] < a[1]]
    return wrong


def ahead(
    samples: Sequence[Sample], produced: Iterable[Produced], ran: Iterable[Execution], skipped: Collection[Where] = ()
) -> list[tuple[Sample, Where]]:
    """Commits that were ahead of the work: a record below the committed offset had not ended when it was seen.

    `skipped`: records that are settled without an execution of their own (duplicates of a business key).
    """
    settled: dict[Where, int] = dict.fromkeys(skipped, 0)
    for each in ran:
        if each.end_ns is not None:
            settled[each.where] = min(each.end_ns, settled.get(each.where, _FOREVER))
    logs: dict[tuple[str, int], list[Where]] = defaultdict(list)
    for record in produced:
        logs[(record.where.topic, record.where.partition)].append(record.where)
    found = []
    for name, log in logs.items():
        log.sort()
        offsets = [where.offset for where in log]
        # By when all records from the log's begin to there had ended: most samples need no more than one look at it.
        all_by = list(accumulate((settled.get(where, _FOREVER) for where in log), max))
        for sample in samples:
            below = bisect_left(offsets, sample.committed.get(name[1], 0)) if sample.topic == name[0] else 0
            if below and all_by[below - 1] > sample.at_ns:
                found += [(sample, each) for each in log[:below] if settled.get(each, _FOREVER) > sample.at_ns]
    return found


def uncommitted(ends: Mapping[int, int], committed: Mapping[int, int]) -> dict[int, tuple[int, int | None]]:
    """Partition -> (end of the log, committed) where the two differ; an empty partition needs no commit."""
    return {each: (end, committed.get(each)) for each, end in ends.items() if end and committed.get(each) != end}


def waits(produced: Iterable[Produced], ran: Iterable[Execution]) -> Iterator[tuple[Execution, float]]:
    """The first execution of each record; for how many seconds its partition had had it to start, and started none."""
    due = {each.where: each.at_ns for each in produced}
    last: dict[tuple[str, int], int] = {}
    first: set[Where] = set()
    for each in sorted(ran, key=lambda each: each.start_ns):
        partition = (each.where.topic, each.where.partition)
        if each.where in due and each.where not in first:
            since = max(due[each.where], last.get(partition, 0))
            yield each, (each.start_ns - since) / 1e9
            first.add(each.where)
        last[partition] = each.start_ns


def pauses(produced: Iterable[Produced], ran: Iterable[Execution]) -> dict[tuple[str, int], float]:
    """Per partition the longest time, in seconds, in which it had a record to start and started none."""
    longest: dict[tuple[str, int], float] = defaultdict(float)
    for each, seconds in waits(produced, ran):
        partition = (each.where.topic, each.where.partition)
        longest[partition] = max(longest[partition], seconds)
    return dict(longest)
