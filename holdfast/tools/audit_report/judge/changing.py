"""Rebalances: what changed hands at about one time, and what was near it. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.tools.audit_report.judge.kept import by_turn
from holdfast.tools.audit_report.judge.times import seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from holdfast.tools.audit_report.judge.kept import Change, JudgedPartition, LiveSettings
    from holdfast.tools.audit_report.judge.owner import Owner
    from holdfast.tools.audit_report.judge.settings import AuditSettings

    Row = dict[str, Any]
    Where = tuple[str, str]


class Near(NamedTuple):
    """A span of records that ended near a rebalance."""

    early_ms: int  #: when about the first of them had ended
    ended_ms: int
    run: str
    topic: str
    partition: str
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """Changes that follow each other within `gather_s`."""

    changes: Sequence[Change]
    from_ms: int  #: what ended from here on is near it
    until_ms: int  #: and up to here: the next one's begin at the latest
    last: bool  #: of those that are known

    @property
    def began_ms(self) -> int:
        """The time of the first change."""
        return self.changes[0].at_ms

    @property
    def ended_ms(self) -> int:
        """The time of the last change."""
        return self.changes[-1].at_ms


def gathered(changes: Iterable[Change], asked: AuditSettings | LiveSettings) -> list[Rebalance]:
    """In the order of time."""
    clusters: list[list[Change]] = []
    for each in sorted(changes):
        if not clusters or each.at_ms - clusters[-1][-1].at_ms > asked.gather_s * 1000:
            clusters.append([])
        clusters[-1].append(each)
    nexts = [each[0].at_ms for each in clusters[1:]]
    return [
        Rebalance(
            changes=cluster,
            from_ms=cluster[0].at_ms - int(asked.before_s * 1000),
            until_ms=min([cluster[-1].at_ms + int(asked.after_s * 1000), *nexts[nth : nth + 1]]),
            last=nth == len(nexts),
        )
        for nth, cluster in enumerate(clusters)
    ]


class Turns:
    """The order in which partitions had their owners."""

    def __init__(self, places: Mapping[Where, JudgedPartition]) -> None:
        self._places = places
        self._known: dict[Where, dict[tuple[str, int], tuple[Owner, Owner | None, int | None]]] = {}

    def at(self, change: Change) -> tuple[Owner, Owner | None, int | None] | None:
        """The owner that got the partition, the one that had it before, and when the last record had ended before."""
        where = (change.topic, change.partition)
        if where not in self._known:
            self._known[where] = self._of(self._places[where])
        return self._known[where].get((change.run, change.seq))

    @staticmethod
    def _of(place: JudgedPartition) -> dict[tuple[str, int], tuple[Owner, Owner | None, int | None]]:
        found: dict[tuple[str, int], tuple[Owner, Owner | None, int | None]] = {}
        last_ms: int | None = None
        before: Owner | None = None
        for owner in by_turn(place.owners):
            found[owner.run, owner.from_seq] = (owner, before, last_ms)
            if owner.last_ms is not None:
                last_ms = owner.last_ms if last_ms is None else max(last_ms, owner.last_ms)
            before = owner
        return found


def rows_of(rebalance: Rebalance, number: int, turns: Turns, near: Sequence[Near]) -> Iterator[tuple[str, Row]]:
    """The rows of `rebalances`, `moves` and `pauses` for one rebalance.

    Args:
        rebalance: the rebalance.
        number: its number.
        turns: of all partitions.
        near: what ended near it, in the order of time.
    """
    moves = [each for each in (_move(each, turns) for each in rebalance.changes) if each]
    gained = sum(each.kind == "assigned" for each in rebalance.changes)
    lags = [each["lag"] for each in moves if each["lag"] is not None]
    # Without records that waited there was nothing to do, so it was no pause.
    waited = (each for each in moves if each["moved"] and each["waiting"])
    pauses = [each["pause_ms"] for each in waited if each["pause_ms"] is not None]
    row = {
        "rebalance": number,
        "began_ms": rebalance.began_ms,
        "ended_ms": rebalance.ended_ms,
        "triggers": sorted({each.trigger for each in rebalance.changes if each.trigger}),
        "members": len({each.run for each in rebalance.changes}),
        "gained": gained,
        "given": len(rebalance.changes) - gained,
        "moved": sum(each["moved"] for each in moves),
        # Without records that waited, or if that is not known, no stop can be measured.
        "stop_ms": _stop_ms(rebalance, near) if any(lags) else None,
        "pause_ms": max(pauses, default=None),
        "lag": sum(lags) if lags else None,
        "recovered_ms": _recovered_ms(moves),
    }
    yield "rebalances", row | _peak(rebalance, moves, near)
    for each in moves:
        yield "moves", each | {"rebalance": number}
        yield "pauses", each | {"rebalance": number}


def _move(change: Change, turns: Turns) -> Row | None:
    found = turns.at(change) if change.kind == "assigned" else None
    if found is None:
        return None
    owner, before, last_ms = found
    lag = None if owner.end is None or owner.position is None else max(owner.end - owner.position, 0)
    recovered = 0 if lag == 0 else None
    if lag and owner.end is not None and (owner.next or 0) >= owner.end and owner.behind_ms is not None:
        recovered = max(owner.behind_ms - owner.from_ms, 0)
    return {
        "topic": change.topic,
        "partition": change.partition,
        "from_member": before and before.member,
        "from_run": before and before.run,
        "to_member": owner.member,
        "to_run": owner.run,
        "moved": before is not None and before.run != owner.run,
        "given_ms": before and before.to_ms,
        "taken_ms": owner.from_ms,
        "position": owner.position,
        "end": owner.end,
        "lag": lag,
        "last_ms": last_ms,
        "first_ms": owner.first_ms,
        "pause_ms": None if last_ms is None or owner.first_ms is None else max(owner.first_ms - last_ms, 0),
        "waiting": lag is not None and lag > 0,
        "recovered_ms": recovered,
        "cut": bool(lag) and recovered is None and owner.to_ms is not None,
    }


def _recovered_ms(moves: Sequence[Row]) -> int | None:
    """None: some of it was not worked off, or of nothing it is known."""
    over = [each["taken_ms"] + each["recovered_ms"] for each in moves if each["recovered_ms"] is not None]
    if not over or any(each["waiting"] and each["recovered_ms"] is None for each in moves):
        return None
    return int(max(over) - min(each["taken_ms"] for each in moves))


def _stop_ms(rebalance: Rebalance, near: Sequence[Near]) -> int | None:
    """The longest time without the end of a record, of those that reach into it or begin within `before_s` of it."""
    longest, reach = None, None
    late_ms = rebalance.ended_ms + rebalance.began_ms - rebalance.from_ms
    for each in near:
        if reach is not None and each.early_ms >= rebalance.began_ms and reach <= late_ms:
            longest = max(longest or 0, each.early_ms - reach)
        reach = each.ended_ms if reach is None else max(reach, each.ended_ms)
    return longest


def _peak(rebalance: Rebalance, moves: Sequence[Row], near: Sequence[Near]) -> dict[str, float | None]:
    """The peak of the member with the highest ratio, in partitions that it gained from others."""
    taken: dict[Where, dict[str, int]] = defaultdict(dict)  # by partition: which run got it, and when first
    for each in moves:
        if each["moved"]:
            of_place = taken[each["topic"], each["partition"]]
            of_place[each["to_run"]] = min(each["taken_ms"], of_place.get(each["to_run"], each["taken_ms"]))
    before: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    after: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for span in near:
        by_run = taken.get((span.topic, span.partition))
        for second_ms, part in seconds(span.early_ms, span.ended_ms, span.records) if by_run else ():
            if second_ms + 1000 <= rebalance.began_ms:
                for run in by_run or ():
                    before[run][second_ms] += part
            elif by_run and span.run in by_run and second_ms + 1000 > by_run[span.run]:
                after[span.run][second_ms] += part
    best: tuple[float, float, float] | None = None
    for run in before.keys() & after.keys():
        steady = sum(before[run].values()) * 1000 / (rebalance.began_ms // 1000 * 1000 - min(before[run]))
        most = max(after[run].values())
        best = max(best or (0.0, 0.0, 0.0), (most / steady, steady, most))
    if best is None:
        return {"steady_per_s": None, "peak_per_s": None, "peak_ratio": None}
    return {"steady_per_s": best[1], "peak_per_s": best[2], "peak_ratio": best[0]}
