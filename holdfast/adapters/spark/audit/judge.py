"""The sweep over all partitions: one sort by offset, then one pass in Python, which holds one partition's ownerships
and the spans over one offset at a time."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.adapters.spark._pyspark import F, pa, to_arrow_schema, types
from holdfast.adapters.spark.audit.facts import PLACE
from holdfast.adapters.spark.audit.owner import Owner
from holdfast.adapters.spark.audit.sweep import Rules, Sweep
from holdfast.plugin.audit.tables import COVERAGE, DUPLICATES, GAPS, OWNERSHIP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from holdfast.adapters.spark._pyspark import DataFrame
    from holdfast.plugin.audit.columns import Table

#: What the sweep finds, as columns of which one is not null; `ownership` with what it found of its spans.
FOUND = {
    "coverage": COVERAGE,
    "gaps": GAPS,
    "duplicates": DUPLICATES,
    "ownership": OWNERSHIP,
}
_MORE = ("turn LONG", "first_ms LONG", "last_ms LONG", "behind_ms LONG", "last_end LONG")
_SENT = (
    "run", "member", "turn", "epoch", "trigger", "from_seq", "from_ms", "to_ms", "ended_by", "position", "end", "said",
    "told", "last_end", "complete", "killed",
)  # fmt: skip
_RULES = ("over", "unheard", "doubted")
_OWNED = tuple(name for name in OWNERSHIP.names if name not in PLACE)
_SOME = 4096  # rows that are handed back at once


def judged(spans: DataFrame, owners: DataFrame, groups: DataFrame, rules: Rules) -> DataFrame:
    """What the sweep finds: a column for each of `FOUND`; read it with `found`.

    Args:
        spans: as in `Facts`; those without offsets are passed over.
        owners: as `owners.ownerships` makes them.
        groups: group, and those of the rules that are of one group: over, unheard, doubted.
        rules: for all groups.
    """
    place = F.to_json(F.array(*PLACE)).alias("place")
    of_spans = spans.where(F.col("first").isNotNull()).select(
        place, F.lit(None).cast("string").alias("owner"),
        "first", "next", "outcome", "records", "began_ms", "ended_ms", "run", "epoch", "seq", "old",
    )  # fmt: skip
    owner = F.to_json(F.struct(*_SENT, *(F.coalesce(name, F.lit(False)).alias(name) for name in _RULES)))
    nothing = {each.name: F.lit(None).cast(each.dataType) for each in of_spans.schema.fields}
    of_owners = owners.join(F.broadcast(groups), "group", "left").select(
        place, owner.alias("owner"), *(column.alias(name) for name, column in list(nothing.items())[2:])
    )
    rows = of_owners.unionByName(of_spans).repartition("place")
    in_order = rows.sortWithinPartitions("place", F.col("first").asc_nulls_first(), "run", "seq")
    return in_order.mapInArrow(_sweeping(rules, to_arrow_schema(_schema())), _schema())


def found(judged: DataFrame, name: str) -> DataFrame:
    """One of the tables, or `ownership` with more columns than its table has."""
    return judged.where(F.col(name).isNotNull()).select(f"{name}.*")


def _schema() -> types.StructType:
    parts = [f"{name}: STRUCT<{_struct(name, table)}>" for name, table in FOUND.items()]
    schema = types.StructType.fromDDL(", ".join(parts))
    assert isinstance(schema, types.StructType)  # noqa: S101 - for mypy: it says that it is any type
    return schema


def _struct(name: str, table: Table) -> str:
    columns = [f"`{each.name}`: {each.type}" for each in table.columns]
    return ", ".join([*columns, *(each.replace(" ", ": ") for each in _MORE)] if name == "ownership" else columns)


def _sweeping(rules: Rules, schema: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def sweep(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ready: list[dict[str, Any]] = []
        for each in _each_place(batches, rules):
            ready += each
            if len(ready) >= _SOME:
                yield pa.RecordBatch.from_pylist(ready, schema=schema)
                ready = []
        yield pa.RecordBatch.from_pylist(ready, schema=schema)

    return sweep


def _each_place(batches: Iterable[pa.RecordBatch], rules: Rules) -> Iterator[list[dict[str, Any]]]:
    place, owners, sweep = "", list[Owner](), None
    asked = rules
    for batch in batches:
        for first, next_ in _runs_of(batch.column("place")):
            part = batch.slice(first, next_ - first)
            here = part.column("place")[0].as_py()
            if here != place:
                yield _ended(place, sweep or Sweep(owners, asked)) if place else []
                place, owners, sweep, asked = here, [], None, rules
            told = part.column("owner").drop_null().to_pylist()
            for each in map(json.loads, told):
                asked = replace(rules, **{name: each.pop(name) for name in _RULES})
                owners.append(Owner(**each))
            part = part.slice(len(told))
            if part.num_rows:
                sweep = sweep or Sweep(owners, asked)
                _sweep_over(sweep, part)
                yield _taken(place, sweep)
    if place:
        yield _ended(place, sweep or Sweep(owners, asked))


def _runs_of(column: pa.Array) -> Iterator[tuple[int, int]]:
    """From and to of equal values that follow each other."""
    import pyarrow.compute as pc  # noqa: PLC0415 - on executors only

    ends = pc.run_end_encode(column).run_ends.to_pylist()
    yield from zip([0, *ends], ends, strict=False)


def _sweep_over(sweep: Sweep, part: pa.RecordBatch) -> None:
    names = ("first", "next", "outcome", "records", "began_ms", "ended_ms", "run", "epoch", "seq", "old")
    last, owner = None, None
    for first, next_, outcome, records, began, ended, run, epoch, seq, old in zip(
        *(part.column(name).to_pylist() for name in names), strict=True
    ):
        if owner is None or (run, epoch, seq) != last:
            owner, last = sweep.owner(run, epoch, seq), (run, epoch, seq)
        sweep.span(owner, first, next_, outcome, records, began, ended, old)


def _taken(place: str, sweep: Sweep) -> list[dict[str, Any]]:
    """Gaps, which are as good as told. Duplicates may still grow by what follows: the last ones stay."""
    at = _at(place)
    rows = [{"gaps": at | row} for row in sweep.gaps]
    sweep.gaps.clear()
    if len(sweep.duplicates) > _SOME:
        rows += [{"duplicates": at | row} for row in sweep.duplicates[:-_LAST]]
        del sweep.duplicates[:-_LAST]
    return rows


def _ended(place: str, sweep: Sweep) -> list[dict[str, Any]]:
    at = _at(place)
    coverage = sweep.close()
    rows = [{"duplicates": at | row} for row in sweep.duplicates]
    sweep.duplicates.clear()
    rows += _taken(place, sweep)
    for each in sweep.owners:
        more = {"turn": each.turn, "first_ms": each.first_ms, "last_ms": each.last_ms, "behind_ms": each.behind_ms}
        owned = {name: getattr(each, name) for name in _OWNED}
        rows.append({"ownership": at | owned | more | {"last_end": each.last_end}})
    return [*rows, {"coverage": at | coverage}]


def _at(place: str) -> dict[str, Any]:
    return dict(zip(PLACE, json.loads(place), strict=True))


_LAST = 64  # more than a sweep may still make longer
