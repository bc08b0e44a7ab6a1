"""Spans that are settled, merged: what is kept of a partition grows with its owners, not with its records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.plugin.audit.schema import Outcome
from holdfast.tools.audit_report.judge.kept import BEGAN, ENDED, EPOCH, FIRST, NEXT, OLD, OUTCOME, RECORDS, RUN

if TYPE_CHECKING:
    from holdfast.tools.audit_report.judge.kept import Span

_HANDLED, _COVERS = Outcome.HANDLED.value, Outcome.ABSENT.value


def merged(spans: list[Span], floor: int, keep_ms: int, remember_ms: int) -> tuple[list[Span], int]:
    """These spans in fewer rows, and the floor below which nothing is looked at.

    Args:
        spans: of one partition.
        floor: so far.
        keep_ms: what ended before may be merged: executions of one run and epoch that follow each other; and all that
            only covers.
        remember_ms: what ended before is forgotten, up to the first offset that is not covered by such.
    """
    kept: list[Span] = []
    old: list[Span] = []
    for each in spans:
        (old if each[OLD] and each[ENDED] < keep_ms else kept).append(each)
    last: dict[tuple[Any, ...], Span] = {}
    rows: list[Span] = []
    for each in sorted(old, key=lambda one: one[FIRST]):
        handled = each[OUTCOME] == _HANDLED
        key = (each[RUN], each[EPOCH]) if handled else ("", None)
        before = last.get(key)
        if before is not None and (before[NEXT] == each[FIRST] or (not handled and before[NEXT] >= each[FIRST])):
            before[NEXT] = max(before[NEXT], each[NEXT])
            before[RECORDS] += each[RECORDS]
            before[BEGAN] = min(before[BEGAN], each[BEGAN])
            before[ENDED] = max(before[ENDED], each[ENDED])
            continue
        row = list(each) if handled else [*each[:OUTCOME], _COVERS, 0, *each[BEGAN:RUN], "", None, 0, True]
        last[key] = row
        rows.append(row)
    return _forgotten(sorted(rows + kept, key=lambda one: one[FIRST]), floor, remember_ms)


def _forgotten(spans: list[Span], floor: int, remember_ms: int) -> tuple[list[Span], int]:
    barrier = min((each[FIRST] for each in spans if each[ENDED] >= remember_ms), default=None)
    for each in spans:
        if each[ENDED] >= remember_ms or (floor and each[FIRST] > floor):
            break
        floor = max(floor, each[NEXT] if barrier is None else min(each[NEXT], barrier))
    left = []
    for each in spans:
        if each[NEXT] <= floor and each[ENDED] < remember_ms:
            continue
        left.append(each)
    return left, floor
