"""A batch's keys asked for, what was told of them counted, and the rows that are to be written: on the driver.

And `drop_done`: what is done already, out of any data frame, for jobs that are no streams.
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
#: For what is kept no longer than one write takes, compression took more time than anything else did.
_UNCOMPRESSED = {"spark.sql.inMemoryColumnarStorage.compressed": "false"}
#: After each row Spark asks how many bytes the batch for Python has: of digests, the number of rows says it.
_UNCOUNTED = {"spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1)}
#: Without this, what is persisted is evaluated by a job of its own, before the one that reads it is planned.
_ONE_JOB = {"spark.sql.adaptive.enabled": "false"}
#: What Spark makes a hash of, whatever its version.
_HASHED = (
    types.NumericType,
    types.StringType,
    types.BinaryType,
    types.BooleanType,
    types.DateType,
    types.TimestampType,
    types.TimestampNTZType,
)
#: That ask Redis at the same time: it answers one after the other, and Python works meanwhile.
_TASKS = 8
_OWNED = (BatchVerdict.NEW.value, BatchVerdict.TAKEN_OVER.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Which row wins when a key stands several times in a batch.

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
    """How many rows have which verdict.

    Args:
        rows: by verdict.
        keys: the print of all keys, see prints.py.
    """

    def __init__(self, rows: Mapping[str, int], keys: str) -> None:
        self._rows = rows
        self.keys = keys
        self.rows = sum(rows.values())
        self.owned = sum(self.of(each) for each in _OWNED)
        self.copies = self.of(COPY)
        self.without_key = self.of(NO_KEY)

    def of(self, verdict: str) -> int:
        """Rows; those of one key count once, but for copies."""
        return self._rows.get(verdict, 0)

    @property
    def failure(self) -> str:
        """The store's error, of one task that met one."""
        return next((each.removeprefix(FAILED) for each in self._rows if each.startswith(FAILED)), "")


def named(rows: DataFrame, at: StoreAt, attempt: Attempt, columns: Sequence[str], keep: Keep) -> DataFrame:
    """The rows with one more column, NAME: what their key is called at the store, its text or its digest.

    By a plan of the attempt's own: Spark knows what is persisted by its plan, so of two sinks of one batch, in threads,
    the one that ends first would take the rows from the other, which would evaluate them anew for its write.
    """
    if keep.by and keep.by not in rows.columns:
        raise SettingError("keep", keep.by, f"the rows have no such column (they have: {', '.join(rows.columns)})")
    own = rows.where(F.lit(attempt.name).isNotNull())  # Spark drops it when it comes to evaluate them
    return with_key(own, columns, NAME, scope=attempt.of.sink if at.hash_keys else None)


def asked(rows: DataFrame, at: StoreAt, attempt: Attempt, patience_s: float) -> DataFrame:
    """Ask the store for the keys of `named`: see `told_schema`.

    The rows themselves stay where they are: it is their keys alone that are shuffled, and that Python sees. What Redis
    keeps together is in one task, and asked for in one go: a bucket's digests begin with the same bits.
    """
    return spread(rows, at).mapInArrow(claiming(at, attempt, patience_s), told_schema(at))


def spread(rows: DataFrame, at: StoreAt) -> DataFrame:
    """The names of `named` alone, shuffled, and put in order where tasks do not."""
    usual = str(rows.sparkSession.conf.get("spark.sql.shuffle.partitions"))
    tasks = min(_TASKS, int(usual)) if usual.isdigit() else _TASKS  # Databricks has "auto" too
    together = F.expr(f"substring({NAME}, 1, 2)") if at.hash_keys else NAME
    names = rows.select(NAME).repartition(tasks, together)
    return names if at.hash_keys else names.sortWithinPartitions(NAME)


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Evaluated once: without it each action would begin with what is above the sink again."""
    with _quick(rows):
        rows = rows.persist()
    try:
        yield rows
    finally:
        rows.unpersist()


def counted(told: DataFrame) -> Counts:
    """Evaluate what `asked` made, and with it the rows: where they are persisted, once and for all."""
    counts: Counter[str] = Counter()
    with _quick(told):
        found = told.where(f"{ROWS} IS NOT NULL").collect()
    parts = [each[ROWS] for each in found if each[VERDICT] == PRINT]
    for each in found:
        if each[VERDICT] != PRINT:
            counts[each[VERDICT]] += each[ROWS]
    return Counts(counts, print_of(parts))


def _quick(rows: DataFrame) -> AbstractContextManager[None]:
    """Set confs for what is persisted, or evaluated, meanwhile."""
    confs = dict(_UNCOMPRESSED)
    if isinstance(rows.schema[NAME].dataType, types.BinaryType):
        confs |= _UNCOUNTED
    if rows.schema.names == TOLD:  # the rows themselves may come from joins of a user's, which Spark is to adapt
        confs |= _ONE_JOB
    return changed(rows.sparkSession, confs)


def owned(rows: DataFrame, told: DataFrame, counts: Counts, keep: Keep) -> DataFrame:
    """Of the rows of `named` that have a key those that the attempt owns, one of each key.

    Where what was persisted is lost with its executor, Spark asks for the claims again. What `check` has not let pass
    fails the job then: rows that were written for it would have keys in other hands.
    """
    passed = (*_OWNED, BatchVerdict.DONE.value, COPY, PRINT, *([NO_KEY] if counts.without_key else ()))
    found = rows
    if counts.copies or counts.of(BatchVerdict.DONE.value):
        found = rows.join(told.where(_is(passed, COPY, BatchVerdict.DONE.value)), NAME, "left_anti")
    if counts.copies:
        found = found.union(_one_each(rows.join(told.where(_is(passed, COPY)), NAME, "left_semi"), keep))
    return found.drop(NAME)


def _is(passed: Sequence[str], *verdicts: str) -> Column:
    """Whether a row of what was told is a name that is one of these; it fails on what `check` has not let pass."""
    told = F.col(VERDICT)
    known = told.isin(*passed)
    lost = F.concat(F.lit("holdfast: claims were lost with an executor, and asked again: "), told)
    return F.when(known, F.col(ROWS).isNull() & told.isin(*verdicts)).otherwise(F.raise_error(lost).cast("boolean"))


def _one_each(rows: DataFrame, keep: Keep) -> DataFrame:
    """Of the rows of one key the same one whenever it is evaluated: a function that writes may have several actions."""
    by = column(keep.by) if keep.by else F.lit(0)
    wins = by.asc_nulls_last() if keep.how == "first" else by.desc_nulls_last()
    told_apart = [each for field in rows.schema.fields if (each := _hashable(field)) is not None]
    place = F.row_number().over(Window.partitionBy(NAME).orderBy(wins, F.xxhash64(*told_apart)))
    return rows.withColumn(_PLACE, place).where(F.col(_PLACE) == 1).drop(_PLACE)


def _hashable(field: types.StructField) -> Column | None:
    """Return what tells values of that column apart in a hash; None: Spark makes none of them."""
    values, of = column(field.name), field.dataType
    if isinstance(of, types.MapType):
        return F.map_entries(values) if _hashed(of.keyType) and _hashed(of.valueType) else None
    return values if _hashed(of) else None


def _hashed(of: types.DataType) -> bool:
    if isinstance(of, types.ArrayType):
        return _hashed(of.elementType)
    if isinstance(of, types.StructType):
        return all(_hashed(field.dataType) for field in of.fields)
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
    """Whether the rows may be written. Args: bad_rows: those without a key have somewhere to go.

    Raises:
        KeyMissing: there are rows without a key, and they have not.
        StoreUnavailable: Redis did not answer.
        BatchFenced: another attempt has begun.
        BatchRefused: a consumer that is not Spark still works on some of the keys.
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
    """The error for an attempt that is over."""
    try:
        why = _WHY[batches.fate(attempt)]
    except StoreError:  # what is certain is that it is over
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
    """The rows whose keys nobody has done: no sink has written them, no consumer has handled them.

    Claims nothing and marks nothing: what runs at the same time may do them meanwhile. Evaluated with the result,
    each time anew. Rows without a key stay. A Redis that does not answer fails the job.

    Args:
        rows: any.
        key: as in `idempotent_sink`.
        claims: as in `idempotent_sink`.
        scope: the sink's name, or the handler's scope.
        namespace: as in RedisClaims.
        hash_keys: as in RedisClaims.
        keys_expected: as in RedisClaims.
        timeout_s: for a connection to Redis, and for each reply.

    Raises:
        SettingError: a setting cannot work, or no such column.
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
