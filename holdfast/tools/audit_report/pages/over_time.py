"""Figures over time, in as many steps as a picture has room for."""

from __future__ import annotations

from array import array
from functools import cache
from typing import TYPE_CHECKING

from holdfast.tools.audit_report import tables as t
from holdfast.tools.audit_report.pages.model import Curves, Listed, Owned, Series, Stretch
from holdfast.tools.audit_report.pages.places import natural
from holdfast.tools.audit_report.pages.reading import Steps
from holdfast.tools.audit_report.pages.style import MOST_COLOURS
from holdfast.tools.audit_report.verdicts import Ended

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.tools.audit_report.pages.model import GroupAudit
    from holdfast.tools.audit_report.pages.reading import TableReader, Where

_MOST_STEPS = 240
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400)
#: Rows of the picture of ownership; and stretches of one of them, of which the first are drawn.
_MOST_OWNED, _MOST_STRETCHES = 40, 2_000
_MOST_LINES = 3
_UNKNOWN = -1


def steps_of(group: GroupAudit, column: str) -> Steps:
    """Steps of whole seconds, as many as fit into the picture."""
    span_s = (group.to_ms - group.from_ms) / 1000 + 1
    step_s = next((each for each in _STEPS_S if span_s / each <= _MOST_STEPS), int(span_s / _MOST_STEPS) + 1)
    return Steps(column, group.from_ms // 1000 * 1000, step_s * 1000)


def _count(group: GroupAudit, steps: Steps) -> int:
    return (group.to_ms - steps.from_ms) // steps.step_ms + 1


def ends_of(reader: TableReader, group: str) -> Mapping[tuple[str, str], tuple[int | None, int | None]]:
    """Partition -> the group's position and the log's end, as members have reported them last. All figures of the lag
    at the end come from these."""
    found: dict[tuple[str, str], tuple[int | None, int | None]] = {}
    keys, where = ("topic", "partition"), {"group": group}
    for topic, partition, position in reader.grouped(t.COVERAGE, keys, value="position", how="max", where=where):
        found[topic, partition] = position, None
    for topic, partition, end in reader.grouped(t.COVERAGE, keys, value="end", how="max", where=where):
        found[topic, partition] = found.get((topic, partition), (None, None))[0], end
    return found


def lag_of(reader: TableReader, group: GroupAudit) -> Curves | None:
    """All partitions together, then the worst. What was heard of a partition last holds until more is heard; the end is
    that of `ends_of`: what members say as they stop is no sample of their progress."""
    steps = steps_of(group, "at_ms")
    count = _count(group, steps)
    heard: dict[tuple[str, str], array[int]] = {}
    for topic, partition, step, lag in reader.grouped(
        t.LAG, ("topic", "partition"), value="lag", how="max", where={"group": group.group}, steps=steps
    ):
        if lag is not None and 0 <= step < count:
            if (topic, partition) not in heard:
                heard[topic, partition] = array("q", [_UNKNOWN]) * count
            heard[topic, partition][step] = max(lag, 0)
    if not heard:
        return None
    for name, (position, log_end) in ends_of(reader, group.group).items():
        if name in heard and position is not None and log_end is not None:
            heard[name][-1] = max(log_end - position, 0)
    total: list[float | None] = [None] * count
    most: dict[tuple[str, str], int] = {}
    for name, values in heard.items():
        last = _UNKNOWN
        for i, value in enumerate(values):
            last = value if value != _UNKNOWN else last
            if last != _UNKNOWN:
                values[i] = last
                total[i] = (total[i] or 0) + last
        most[name] = max(values)
    worst = sorted((name for name in most if most[name] > 0), key=lambda each: (-most[each], each))[:_MOST_LINES]
    lines = [
        Series(name="-".join(name), values=[None if value == _UNKNOWN else value for value in heard[name]])
        for name in worst
    ]
    return Curves(
        from_ms=steps.from_ms, step_ms=steps.step_ms, series=[Series(name="all partitions", values=total), *lines]
    )


def intake_of(reader: TableReader, group: GroupAudit, names: Sequence[str]) -> Curves | None:
    """Records a second of each member, the names in their order; those with least are one."""
    steps = steps_of(group, "second_ms")
    count = _count(group, steps)
    found: dict[str, list[float]] = {}
    for member, step, records in reader.grouped(
        t.INTAKE, ("member",), value="records", how="sum", where={"group": group.group}, steps=steps
    ):
        if records is not None and 0 <= step < count:
            found.setdefault(member, [0.0] * count)[step] += records * 1000 / steps.step_ms
    if not found:
        return None
    most = sorted(found, key=lambda each: -sum(found[each]))
    shown = set(most[:MOST_COLOURS] if len(most) > MOST_COLOURS else most)
    series = [Series(name=name, values=found[name]) for name in names if name in shown]
    rest = [found[name] for name in most if name not in {each.name for each in series}]
    if rest:
        series.append(Series(name=f"{len(rest)} more", values=[sum(each) for each in zip(*rest, strict=True)]))
    return Curves(from_ms=steps.from_ms, step_ms=steps.step_ms, series=series)


def owned_of(
    reader: TableReader, group: GroupAudit, first: Sequence[tuple[str, str]], names: Sequence[str]
) -> tuple[Listed[Owned], list[str]]:
    """Partitions with their owners, `first` (topic and name) before those that moved most; and all members' names,
    `names` first."""
    where: Where = {"group": group.group}

    @cache
    def heard_ms(run: str) -> int:
        """When a process that has its partitions still was heard last: nothing is known of it from then on."""
        found = reader.largest(t.MEMBERS, "ended_ms", 1, {**where, "run": run}).rows
        return found[0]["ended_ms"] if found else group.to_ms

    counts = {
        (topic, f"{topic}-{partition}"): (partition, times)
        for topic, partition, times in reader.grouped(
            t.OWNERSHIP, ("topic", "partition"), value="from_ms", how="count", where=where
        )
    }
    by_moves = sorted(counts, key=lambda each: (-counts[each][1], natural(each[1]), each))
    chosen = list(dict.fromkeys([*(each for each in first if each in counts), *by_moves]))[:_MOST_OWNED]
    every = list(names)
    places = {name: i for i, name in enumerate(every)}
    rows = []
    for topic, name in sorted(chosen, key=lambda each: (natural(each[1]), each)):
        partition, _ = counts[topic, name]
        here: Where = {**where, "topic": topic, "partition": partition}
        owners = reader.largest(t.OWNERSHIP, "from_ms", _MOST_STRETCHES, here).rows
        stretches = []
        for row in sorted(owners, key=lambda each: each["from_ms"]):
            if row["member"] not in places:
                places[row["member"]] = len(every)
                every.append(row["member"])
            to_ms = row["to_ms"] if row["to_ms"] is not None else heard_ms(row["run"])
            silent = row["ended_by"] == Ended.KILLED
            stretches.append(Stretch(places[row["member"]], row["from_ms"], max(to_ms, row["from_ms"]), silent))
        paused = reader.largest(t.PAUSES, "pause_ms", _MOST_STRETCHES, {**here, "waiting": True}).rows
        pauses = [
            (row["last_ms"], row["first_ms"])
            for row in paused
            if row["last_ms"] is not None and row["first_ms"] is not None and row["pause_ms"]
        ]
        rows.append(Owned(partition=name, stretches=stretches, pauses=sorted(pauses)))
    return Listed(rows=rows, total=len(counts)), every
