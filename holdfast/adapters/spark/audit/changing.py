"""A stream's rebalances: what changed hands at about one time, told when its effects are over. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.plugin.audit.schema import NO_RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.adapters.spark.audit.kept import Change, LiveSettings, Place
    from holdfast.adapters.spark.audit.owner import Owner

    Where = tuple[str, str]
    Places = Mapping[Where, Place]


@dataclass(slots=True)
class Found:
    """Rows by table; and up to when rebalances are told."""

    rows: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    told_ms: int = 0


def rebalanced(changes: Sequence[Change], places: Places, asked: LiveSettings, told_ms: int, now_ms: int) -> Found:
    """Those that ended after `told_ms` and are over at `now_ms`: the next one has begun, or `after_s` is over."""
    found = Found()
    clusters = list(_clusters(changes, int(asked.gather_s * 1000)))
    for nth, cluster in enumerate(clusters):
        next_ms = clusters[nth + 1][0].at_ms if nth + 1 < len(clusters) else None
        over_ms = cluster[-1].at_ms + int(asked.after_s * 1000)
        until_ms = over_ms if next_ms is None else min(next_ms, over_ms)
        if cluster[-1].at_ms <= told_ms:
            continue
        if until_ms > now_ms or (next_ms is None and cluster[-1].at_ms + int(asked.gather_s * 1000) > now_ms):
            break
        found.rows += _Rebalance(cluster, places, int(asked.before_s * 1000), until_ms).rows()
        found.told_ms = cluster[-1].at_ms
    return found


def _clusters(changes: Sequence[Change], gather_ms: int) -> Iterator[list[Change]]:
    cluster: list[Change] = []
    for each in sorted(changes):
        if cluster and each.at_ms - cluster[-1].at_ms > gather_ms:
            yield cluster
            cluster = []
        cluster.append(each)
    if cluster:
        yield cluster


class _Rebalance:
    def __init__(self, cluster: list[Change], places: Places, before_ms: int, until_ms: int) -> None:
        self._cluster, self._places = cluster, places
        self._began_ms, self._ended_ms = cluster[0].at_ms, cluster[-1].at_ms
        self._before_ms, self._until_ms = before_ms, until_ms

    def rows(self) -> list[tuple[str, dict[str, Any]]]:
        moves = [each for each in map(self._move, self._cluster) if each]
        gained = [each for each in self._cluster if each.kind == "assigned"]
        waiting = [each for each in moves if each["waiting"]]
        recovered = None
        if moves and all(each["recovered_ms"] is not None for each in waiting):
            taken_ms = min(each["taken_ms"] for each in moves)
            recovered = max(each["taken_ms"] + (each["recovered_ms"] or 0) for each in moves) - taken_ms
        row = {
            "rebalance": self._began_ms,
            "began_ms": self._began_ms,
            "ended_ms": self._ended_ms,
            "triggers": sorted({each.trigger for each in self._cluster if each.trigger}),
            "members": len({each.run for each in self._cluster}),
            "gained": len(gained),
            "given": len(self._cluster) - len(gained),
            "moved": sum(each["moved"] for each in moves),
            "stop_ms": self._stop_ms(),
            "pause_ms": max((each["pause_ms"] for each in moves if each["moved"] and each["pause_ms"]), default=None),
            "lag": sum(each["lag"] for each in moves if each["lag"] is not None),
            "recovered_ms": recovered,
        }
        rows: list[tuple[str, dict[str, Any]]] = [("rebalances", row | self._peak(moves))]
        for each in moves:
            rows += [("moves", each), ("pauses", each)]
        return rows

    def _move(self, change: Change) -> dict[str, Any] | None:
        if change.kind != "assigned":
            return None
        owners = sorted(self._places[change.topic, change.partition].owners, key=lambda each: each.from_ms)
        mine = [nth for nth, each in enumerate(owners) if (each.run, each.from_seq) == (change.run, change.seq)]
        if not mine:
            return None
        owner: Owner = owners[mine[0]]
        before = owners[mine[0] - 1] if mine[0] else None
        last_ms = max((each.last_ms for each in owners[: mine[0]] if each.last_ms is not None), default=None)
        lag = None if owner.end is None or owner.position is None else max(owner.end - owner.position, 0)
        recovered = 0 if lag == 0 else None
        if lag and owner.end is not None and (owner.next or 0) >= owner.end and owner.behind_ms is not None:
            recovered = max(owner.behind_ms - owner.from_ms, 0)
        pause = None if last_ms is None or owner.first_ms is None else max(owner.first_ms - last_ms, 0)
        return {
            "rebalance": self._began_ms,
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
            "pause_ms": pause,
            "waiting": lag is not None and lag > 0,
            "recovered_ms": recovered,
            "cut": bool(lag) and recovered is None and owner.to_ms is not None,
        }

    def _near(self, where: Sequence[Where]) -> Iterator[tuple[str, int, int, int]]:
        """run, early, ended, records of spans of records that ended near it."""
        for each in where:
            for span in self._places[each].spans:
                _, _, outcome, records, began, ended, run, *_ = span
                if outcome in NO_RECORDS or not self._began_ms - self._before_ms <= ended <= self._until_ms:
                    continue
                yield run, ended if records < 2 else began + (ended - began) // records, ended, records

    def _stop_ms(self) -> int | None:
        longest, reach = None, None
        for _, early, ended, _ in sorted(self._near(list(self._places)), key=lambda each: each[1:3]):
            if reach is not None and early >= self._began_ms and reach <= self._ended_ms + self._before_ms:
                longest = max(longest or 0, early - reach)
            reach = ended if reach is None else max(reach, ended)
        return longest

    def _peak(self, moves: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
        best: tuple[float, float, float] | None = None
        by_run = defaultdict(list)
        for each in moves:
            if each["moved"]:
                by_run[each["to_run"]].append((each["topic"], each["partition"]))
        for run, where in by_run.items():
            before, after = defaultdict[int, float](float), defaultdict[int, float](float)
            for of, early, ended, records in self._near(where):
                for second in range(early // 1000, ended // 1000 + 1):
                    low, high = max(early, second * 1000), min(ended, second * 1000 + 1000)
                    part = records * ((high - low) / (ended - early) if ended > early else 1.0)
                    if second * 1000 + 1000 <= self._began_ms:
                        before[second] += part
                    elif of == run:
                        after[second] += part
            if before and after:
                steady = sum(before.values()) / (self._began_ms // 1000 - min(before))
                ratio = max(after.values()) / steady
                best = max(best or (0.0, 0.0, 0.0), (ratio, steady, max(after.values())))
        if best is None:
            return {"steady_per_s": None, "peak_per_s": None, "peak_ratio": None}
        return {"steady_per_s": best[1], "peak_per_s": best[2], "peak_ratio": best[0]}
