"""Claims a batch's keys, counts the verdicts, and selects the rows to write. On the driver.

Also `drop_done`, for jobs that are no streams: removes rows whose keys are done from any data frame.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import F, Window, types
from holdfast.adapters.spark.keys import check_columns, check_names, column, key_columns, with_key
from holdfast.adapters.spark.prints import print_of
from holdfast.adapters.spark.session import changed
from holdfast.adapters.spark.store import StoreAt
from holdfast.adapters.spark.tasks import (
    COPY,
    FAILED,
    NAME,
    NO_KEY,
    PRINT,
    ROWS,
    TOLD,
    VERDICT,
    claiming,
    keeping,
    told_schema,
)
from holdfast.adapters.spark.values import BatchFenced, BatchRefused
from holdfast.dedup.spark_batches import BatchVerdict, Fate
from holdfast.errors import KeyMissing, SettingError, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from holdfast.adapters.spark._pyspark import Column, DataFrame
    from holdfast.dedup.redis_spark_batches import RedisBatches
    from holdfast.dedup.spark_batches import Attempt

_PLACE = "__hf_place"
#: Persisted rows live for one write only, and compressing them took more time than all other steps.
_UNCOMPRESSED = {"spark.sql.inMemoryColumnarStorage.compressed": "false"}
#: Spark computes the bytes of a batch for Python after each row. Digests have a fixed size, so it need not.
_UNCOUNTED = {"spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1)}
#: With adaptive execution, persisted rows would be evaluated by a job of their own before the reading job is planned.
_ONE_JOB = {"spark.sql.adaptive.enabled": "false"}
#: The types that every version of Spark can hash.
_HASHED = (
    types.NumericType,
    types.StringType,
    types.BinaryType,
    types.BooleanType,
    types.DateType,
    types.TimestampType,
    types.TimestampNTZType,
)
#: The most tasks that ask Redis at the same time. Redis answers one after the other while Python works on the others.
_TASKS = 8
_OWNED = (BatchVerdict.NEW.value, BatchVerdict.TAKEN_OVER.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Which row wins if a batch has a key several times.

    Args:
        how: "any", or "first" or "last": the row with the lowest or the highest value in `by`.
        by: a column; nulls lose.
    """

    how: str = "any"
    by: str = ""

    def __post_init__(self) -> None:
        if self.how not in ("any", "first", "last") or bool(self.by) == (self.how == "any"):
            raise SettingError("keep", (self.how, self.by), "give 'any', ('first', a column) or ('last', a column)")


class Counts:
    """The numbers of rows by verdict.

    Args:
        rows: verdict -> number of rows.
        keys: the print of all keys; see prints.py.
    """

    def __init__(self, rows: Mapping[str, int], keys: str) -> None:
        self._rows = rows
        self.keys = keys
        self.rows = sum(rows.values())
        self.owned = sum(self.of(each) for each in _OWNED)
        self.copies = self.of(COPY)
        self.without_key = self.of(NO_KEY)

    def of(self, verdict: str) -> int:
        """The rows with this verdict. Rows of one key count once, except as copies."""
        return self._rows.get(verdict, 0)

    @property
    def failure(self) -> str:
        """The store's error in one of the tasks; "": there was none."""
        return next((each.removeprefix(FAILED) for each in self._rows if each.startswith(FAILED)), "")


def named(rows: DataFrame, at: StoreAt, attempt: Attempt, columns: Sequence[str], keep: Keep) -> DataFrame:
    """The rows with one more column, NAME: the name of their key in the store, which is its text or its digest.

    The plan includes the attempt's name. Spark identifies persisted rows by their plan: if two sinks write a batch in
    two threads with the same plan, the first to end would unpersist the other's rows, which would be evaluated again.
    """
    if keep.by and keep.by not in rows.columns:
        raise SettingError("keep", keep.by, f"the rows have no such column (they have: {', '.join(rows.columns)})")
    own = rows.where(F.lit(attempt.name).isNotNull())  # always true: the optimizer removes it
    return with_key(own, columns, NAME, scope=attempt.of.sink if at.hash_keys else None)


def asked(rows: DataFrame, at: StoreAt, attempt: Attempt, patience_s: float) -> DataFrame:
    """Claim the keys of `named` at the store. Returns rows of `told_schema`.

    Only the keys are shuffled and passed to Python; the rows stay where they are. Keys that Redis keeps together are in
    one task, and claimed in one call: digests of one bucket begin with the same bits.
    """
    return spread(rows, at).mapInArrow(claiming(at, attempt, patience_s), told_schema(at))


def spread(rows: DataFrame, at: StoreAt) -> DataFrame:
    """Only the names of `named`, shuffled. Texts are sorted here, digests in the tasks."""
    usual = str(rows.sparkSession.conf.get("spark.sql.shuffle.partitions"))
    tasks = min(_TASKS, int(usual)) if usual.isdigit() else _TASKS  # Databricks also has the value "auto"
    together = F.expr(f"substring({NAME}, 1, 2)") if at.hash_keys else NAME
    names = rows.select(NAME).repartition(tasks, together)
    return names if at.hash_keys else names.sortWithinPartitions(NAME)


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Persist the rows meanwhile: without it, each action would evaluate the plan above the sink again."""
    with _confs_for_evaluation(rows):
        rows = rows.persist()
    try:
        yield rows
    finally:
        rows.unpersist()


def counted(told: DataFrame) -> Counts:
    """Evaluate the result of `asked`, and count it. This also evaluates the rows, once if they are persisted."""
    counts: Counter[str] = Counter()
    with _confs_for_evaluation(told):
        found = told.where(f"{ROWS} IS NOT NULL").collect()
    parts = [each[ROWS] for each in found if each[VERDICT] == PRINT]
    for each in found:
        if each[VERDICT] != PRINT:
            counts[each[VERDICT]] += each[ROWS]
    return Counts(counts, print_of(parts))


def _confs_for_evaluation(rows: DataFrame) -> AbstractContextManager[None]:
    """Set the confs above while rows are persisted or evaluated."""
    confs = dict(_UNCOMPRESSED)
    if isinstance(rows.schema[NAME].dataType, types.BinaryType):
        confs |= _UNCOUNTED
    if rows.schema.names == TOLD:  # not for the user's rows: their joins may need adaptive execution
        confs |= _ONE_JOB
    return changed(rows.sparkSession, confs)


def owned(rows: DataFrame, told: DataFrame, counts: Counts, keep: Keep) -> DataFrame:
    """The rows of `named` whose keys the attempt owns, one row of each key.

    If persisted verdicts are lost with an executor, Spark claims the keys again. A verdict that `check` would not have
    accepted then fails the job: otherwise rows would be written whose keys another consumer has.
    """
    passed = (*_OWNED, BatchVerdict.DONE.value, COPY, PRINT, *([NO_KEY] if counts.without_key else ()))
    found = rows
    if counts.copies or counts.of(BatchVerdict.DONE.value):
        found = rows.join(told.where(_has_verdict(passed, COPY, BatchVerdict.DONE.value)), NAME, "left_anti")
    if counts.copies:
        found = found.union(
            _one_row_per_key(rows.join(told.where(_has_verdict(passed, COPY)), NAME, "left_semi"), keep)
        )
    return found.drop(NAME)


def _has_verdict(passed: Sequence[str], *verdicts: str) -> Column:
    """Whether a row has a name and one of these verdicts. Fails the job on a verdict that `check` did not accept."""
    told = F.col(VERDICT)
    known = told.isin(*passed)
    lost = F.concat(F.lit("holdfast: claims were lost with an executor, and asked again: "), told)
    return F.when(known, F.col(ROWS).isNull() & told.isin(*verdicts)).otherwise(F.raise_error(lost).cast("boolean"))


def _one_row_per_key(rows: DataFrame, keep: Keep) -> DataFrame:
    """One row of each key, the same one in each evaluation: a function that writes may have several actions."""
    by = column(keep.by) if keep.by else F.lit(0)
    wins = by.asc_nulls_last() if keep.how == "first" else by.desc_nulls_last()
    told_apart = [each for field in rows.schema.fields if (each := _hashable(field)) is not None]
    place = F.row_number().over(Window.partitionBy(NAME).orderBy(wins, F.xxhash64(*told_apart)))
    return rows.withColumn(_PLACE, place).where(F.col(_PLACE) == 1).drop(_PLACE)


def _hashable(field: types.StructField) -> Column | None:
    """The expression by which the column's values can be hashed; None: Spark cannot hash this type."""
    values, of = column(field.name), field.dataType
    if isinstance(of, types.MapType):
        return F.map_entries(values) if _is_hashable(of.keyType) and _is_hashable(of.valueType) else None
    return values if _is_hashable(of) else None


def _is_hashable(of: types.DataType) -> bool:
    if isinstance(of, types.ArrayType):
        return _is_hashable(of.elementType)
    if isinstance(of, types.StructType):
        return all(_is_hashable(field.dataType) for field in of.fields)
    return isinstance(of, _HASHED)


def check(
    counts: Counts,
    attempt: Attempt,
    batches: RedisBatches,
    columns: Sequence[str],
    patience_s: float,
    *,
    bad_rows: bool = False,
) -> None:
    """Check that the rows may be written. `bad_rows`: rows without a key are written elsewhere.

    Raises:
        KeyMissing: there are rows without a key, and no `bad_rows`.
        StoreUnavailable: Redis did not answer.
        BatchFenced: another attempt has begun.
        BatchRefused: a consumer without Spark still handles some of the keys.
    """
    where = f"batch {attempt.of.batch} of sink {attempt.of.sink!r}"
    if (missing := counts.without_key) and not bad_rows:
        names = ", ".join(columns)
        raise KeyMissing(
            f"{missing} rows of {where} have no key (null or empty in {names}): say by bad_rows= where they go, or "
            "filter them before the sink"
        )
    if counts.failure:
        raise StoreUnavailable(f"{where} was not written, and is when the query is started again: {counts.failure}")
    if counts.of(BatchVerdict.FENCED.value):
        raise fenced(attempt, batches)
    if busy := counts.of(BatchVerdict.BUSY.value):
        raise BatchRefused(
            f"{where} was not written: {busy} of its keys are in the hands of other consumers for more than "
            f"{patience_s:g} s: start the query again when they are through, or give a longer patience_s"
        )


_SILENT = (
    "this driver was silent for longer than lease_s, or Redis was away for as long: start the query again, or give a "
    "longer lease_s"
)
_WHY = {
    Fate.LOST: "Redis has lost its data in the middle of the batch: it was emptied, came back without them, or a "
    "replica that was behind has taken over: start the query again, and give Redis persistence",
    Fate.MOVED: "Redis was started again in the middle of the batch, or a replica took over that may lack some of the "
    "batch's claims: start the query again, and the batch is done again",
    Fate.TAKEN: "another run of query {query}, or another query on this sink, has begun since, and this driver counts "
    "as dead: keep one run of the query, or give a longer lease_s",
    Fate.SILENT: _SILENT,
    Fate.LIVES: "its first claims are older than remember_s and may have run out, or its executors reach another Redis "
    "than this driver: give a longer remember_s, and all of them the same URL and network",
}


def fenced(attempt: Attempt, batches: RedisBatches) -> BatchFenced:
    """The error for an attempt that does not count any more."""
    try:
        why = _WHY[batches.fate(attempt)]
    except StoreError:  # only the reason is unknown then
        why = _SILENT
    return BatchFenced(
        f"batch {attempt.of.batch} of sink {attempt.of.sink!r} does not count: {why.format(query=attempt.of.query)}"
    )


def drop_done(
    rows: DataFrame,
    *,
    key: str | Sequence[str],
    claims: str,
    scope: str,
    namespace: str = "holdfast",
    hash_keys: bool = False,
    keys_expected: int = 1_000_000,
    timeout_s: float = 5.0,
) -> DataFrame:
    """The rows whose keys are not done: no sink has written them, no consumer has handled them.

    Neither claims nor marks a key: consumers that run at the same time may handle it meanwhile. The keys are looked up
    whenever the result is evaluated. Rows without a key stay. If Redis does not answer, the job fails.

    Args:
        rows: any data frame.
        key: as in `idempotent_sink`.
        claims: as in `idempotent_sink`.
        scope: the sink's name, or the handler's scope.
        namespace: as in RedisClaims.
        hash_keys: as in RedisClaims.
        keys_expected: as in RedisClaims.
        timeout_s: seconds for a connection to Redis, and for each reply.

    Raises:
        SettingError: a setting cannot work, or there is no such column.
    """
    columns = key_columns(key)
    check_columns(rows, columns)
    check_names(rows)
    at = StoreAt(
        url=claims,
        namespace=namespace,
        remember_s=7 * 86_400.0,
        hash_keys=hash_keys,
        keys_expected=keys_expected,
        timeout_s=timeout_s,
    )
    return rows.mapInArrow(keeping(at.resolved(rows.sparkSession), scope, columns), rows.schema)
