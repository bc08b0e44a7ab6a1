"""`idempotent_sink`: the function for foreachBatch. START HERE; the protocol is in dedup/spark_batches.py.

The steps: begin on the driver; claims on the executors (tasks.py), persisted and counted before the write; write;
finish. If a process dies at any step, the next attempt repeats what is not finished, and nothing that is. All steps of
a batch are in this file. The object has settings but no state, so it pickles, and two calls share nothing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from holdfast.adapters.spark._pyspark import SPARK_ERRORS
from holdfast.adapters.spark.attempt_session import attempt_session, begin, check_still_ours, finish
from holdfast.adapters.spark.badrows import BadRows, bad_rows_of
from holdfast.adapters.spark.batch_status import is_replay, require_replay
from holdfast.adapters.spark.keys import check_columns, key_columns
from holdfast.adapters.spark.marking import Keep, asked, check, counted, kept, named, owned
from holdfast.adapters.spark.session import described, origin_of, query_of, require_workers
from holdfast.adapters.spark.store import StoreAt
from holdfast.adapters.spark.telling import Telling
from holdfast.adapters.spark.values import BatchReport, BatchWrite, StillOurs
from holdfast.adapters.spark.writers import PartitionWriter, writer_of
from holdfast.dedup.spark_batches import BatchId, Finished
from holdfast.errors import HoldfastError, SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.spark._pyspark import DataFrame, SparkSession
    from holdfast.adapters.spark.telling import Observer, OnSkip
    from holdfast.adapters.spark.values import Safe, Writer
    from holdfast.adapters.spark.writers import WriteFunction
    from holdfast.dedup.redis_session import RedisSession
    from holdfast.dedup.redis_spark_batches import RedisBatches
    from holdfast.dedup.spark_batches import Attempt

_DAY_S = 86_400.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # also the name of a folder, so ".." must not match


def idempotent_sink(
    name: str,
    *,
    key: str | Sequence[str],
    claims: str,
    write: Writer | WriteFunction,
    safe: Safe | None = None,
    query: str | None = None,
    keep: str | tuple[str, str] = "any",
    bad_rows: str | PartitionWriter | None = None,
    remember_s: float = 7 * _DAY_S,
    on_skip: OnSkip = "warn",
    observer: Observer | None = None,
    lease_s: float = 30.0,
    patience_s: float = 60.0,
    timeout_s: float = 5.0,
    namespace: str = "holdfast",
    hash_keys: bool = False,
    keys_expected: int = 1_000_000,
    durability: Literal["none", "wait1"] = "none",
) -> IdempotentSink:
    """Make a function for `foreachBatch` that writes each key once. Spark calls it on the driver.

    Args:
        name: the sink's name, which is the scope of its keys: letters, digits, ".", "_", "-". Consumers without Spark
            share keys with it by `scope=name` and the same namespace.
        key: the column of the business key (text, a whole number, or bytes), or several columns (text, whole numbers).
        claims: Redis' URL, or the name of a conf of the Spark session that has it.
        write: one of `writers`, or a function of your own, `write(rows, batch)`.
        safe: for a function of your own, why it may be called again for the same batch: "replace", "upsert" or
            "transaction".
        query: a name that is the same at each start of the query; use another one for another checkpoint. None: Spark's
            id of the query.
        keep: which row wins if a batch has a key several times: "any", ("first", column), ("last", column).
        bad_rows: for rows without a key: `writers.partition(path)` writes them to a lake of their own; the name of a
            column writes them among the others, and adds this column with the fault of the key, or null. None: such a
            row ends the query.
        remember_s: seconds that a key stays done.
        on_skip: for a batch that an earlier attempt has finished: "warn", "raise", or a function of the report.
        observer: called with the report of each batch, on the driver.
        lease_s: an attempt that is silent for this many seconds counts as dead, and others take over. A restart of the
            same query takes over at once.
        patience_s: seconds to wait for another query's attempt, for a key that another consumer handles, and for a
            Redis that does not answer.
        timeout_s: seconds for a connection to Redis, and for each reply.
        namespace: as in RedisClaims.
        hash_keys: as in RedisClaims.
        keys_expected: as in RedisClaims.
        durability: as in RedisClaims. "wait1": begin, claims and finish are answered once a replica has them too.

    Raises:
        SettingError: a setting cannot work, for example a function without `safe`.
    """
    how, by = (keep, "") if isinstance(keep, str) else keep
    writer = writer_of(write, safe)
    return IdempotentSink(
        name=name,
        key=key_columns(key),
        at=StoreAt(
            url=claims,
            namespace=namespace,
            remember_s=remember_s,
            hash_keys=hash_keys,
            keys_expected=keys_expected,
            timeout_s=timeout_s,
            durability=durability,
        ),
        writer=writer,
        bad_rows=bad_rows_of(bad_rows, writer),
        query=query,
        keep=Keep(how=how, by=by),
        telling=Telling(on_skip=on_skip, observer=observer),
        lease_s=lease_s,
        patience_s=patience_s,
    )


@dataclass(frozen=True, kw_only=True)
class IdempotentSink:
    """The sink that `idempotent_sink` makes. Pickles if its arguments do."""

    name: str
    key: tuple[str, ...]
    at: StoreAt
    writer: Writer
    bad_rows: BadRows | None = None
    query: str | None = None
    keep: Keep = field(default_factory=Keep)
    telling: Telling = field(default_factory=Telling)
    lease_s: float = 30.0
    patience_s: float = 60.0

    def __post_init__(self) -> None:
        for what, value in (("name", self.name), ("query", self.query)):
            if value is not None and not _NAME.fullmatch(str(value)):
                raise SettingError(
                    what,
                    value,
                    "give a name of letters, digits, '.', '_' and '-', that begins with one of the first two",
                )
        for what, seconds in (("lease_s", self.lease_s), ("patience_s", self.patience_s)):
            if not 1 <= seconds < math.inf:
                raise SettingError(what, seconds, "give a number of seconds, at least 1")

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Write a batch, or skip it with a warning. Called by Spark, on the driver.

        Raises:
            BatchFenced: another attempt has begun.
            BatchRefused: another query writes to the sink, other consumers handle some keys, or batch numbers have
                begun anew.
            KeyMissing: there are rows without a key, and no `bad_rows`.
            StoreUnavailable: Redis does not answer.
            StoreRefused: Redis refuses.
            SettingError: there is no such column, or no id of the query.
            ClientUnusable: Spark's Python workers run another Python, or have no holdfast.
        """
        try:
            self._run(rows, batch_id)
        except HoldfastError as error:
            self.telling.failed(self.name, error)
            raise

    def _run(self, rows: DataFrame, batch_id: int) -> None:
        of = BatchId(self.name, query_of(rows, self.query), batch_id)
        check_columns(rows, self.key)
        if self.bad_rows:
            self.bad_rows.check(rows)
        spark = rows.sparkSession
        at, origin = self.at.resolved(spark), origin_of(rows)
        with (
            at.opened(self.patience_s) as (store, batches),
            attempt_session(store, batches, self.lease_s, self.patience_s) as own,
        ):
            begun, beside = begin(of, batches, own, self.patience_s, origin=origin), None
            while isinstance(begun, Finished):
                self.confirm(spark, begun.attempt)
                if is_replay(
                    rows,
                    begun,
                    at=at,
                    origin=origin,
                    key=self.key,
                    writer=self.writer,
                    patience_s=self.patience_s,
                    bad_rows=self.bad_rows,
                ):
                    self.telling.skipped(_skipped(begun.attempt))
                    return
                beside = begun.attempt
                begun = begin(of, batches, own, self.patience_s, origin=origin, beside=beside)
            if begun.last is not None:  # its driver may have died before it confirmed the last batch
                self.confirm(spark, begun.last)
            attempt, session = begun.attempt, own.session
            if beside is None and self.writer.finished(spark, BatchWrite.of(attempt, self.key, 0)):
                # Redis has lost the batch, but the sink has it as finished. Claim its keys again, so that Redis knows
                # them for later batches.
                require_replay(rows, attempt, self.key, self.writer, self.bad_rows)
                self._write(rows, at, attempt, batches, session, write=False)
                self.telling.skipped(_skipped(attempt))
            else:
                report = self._write(rows, at, attempt, batches, session, write=True)
                self.telling.written(replace(report, another=beside is not None))

    def remove_orphans(self, spark: SparkSession) -> list[str]:
        """Remove rows of unfinished attempts from the lake, and from that of `bad_rows`. Queries on the sink wait
        meanwhile. On the driver.

        Returns:
            The removed folders.

        Raises:
            SettingError: neither the writer nor `bad_rows` is `writers.partition`.
            BatchRefused: a query writes for longer than `patience_s`.
            StoreUnavailable: Redis does not answer.
            StoreRefused: Redis refuses.
        """
        found = (self.writer, self.bad_rows and self.bad_rows.lake)
        lakes = [each for each in found if isinstance(each, PartitionWriter)]
        if not lakes:
            raise SettingError("write", type(self.writer).__name__, "is no lake: only writers.partition makes one")
        for lake in lakes:
            lake.require_own(spark, self.name)
        # This attempt never finishes; a query that begins meanwhile waits for it as for another query's.
        of = BatchId(self.name, "holdfast.orphans", 0)
        with (
            self.at.resolved(spark).opened(self.patience_s) as (store, batches),
            attempt_session(store, batches, self.lease_s, self.patience_s) as own,
        ):
            begun = begin(of, batches, own, self.patience_s)
            if isinstance(begun, Finished):
                return []  # cannot happen: no such attempt finishes
            if begun.last is not None:  # finished, and maybe without its mark yet
                self.confirm(spark, begun.last)
            return [folder for lake in lakes for folder in lake.sweep(spark, begun.attempt.fence)]

    def confirm(self, spark: SparkSession, attempt: Attempt) -> None:
        """Note in the sink that Redis has the attempt as finished. Bad rows first: see badrows.py."""
        if self.bad_rows:
            self.bad_rows.confirm(spark, attempt)
        self.writer.confirm(spark, attempt)

    def _write(
        self,
        rows: DataFrame,
        at: StoreAt,
        attempt: Attempt,
        batches: RedisBatches,
        session: RedisSession,
        *,
        write: bool,
    ) -> BatchReport:
        spark = rows.sparkSession
        what = f"holdfast: batch {attempt.of.batch} of sink {attempt.of.sink}, attempt {attempt.number}"
        with (
            kept(named(rows, at, attempt, self.key, self.keep)) as keyed,
            kept(asked(keyed, at, attempt, self.patience_s)) as told,
        ):
            try:
                with described(rows, f"{what}: keys claimed"):
                    counts = counted(told)
            except SPARK_ERRORS:
                require_workers(spark)
                raise
            bad_rows = self.bad_rows
            check(counts, attempt, batches, self.key, self.patience_s, bad_rows=bad_rows is not None)
            mine = owned(bad_rows.without(keyed) if bad_rows else keyed, told, counts, self.keep)
            ours = StillOurs(partial(check_still_ours, attempt, batches, session, self.patience_s))
            ours.check()
            bad, among = counts.without_key, 0
            if write and bad_rows and bad:
                alone = bad_rows.alone(keyed, self.key)
                if bad_rows.lake:
                    with described(rows, f"{what}: {bad} rows without a key written"):
                        bad_rows.lake.write(alone, BatchWrite.of(attempt, self.key, bad, ours))
                else:
                    mine, among = mine.unionByName(alone), bad
            if write:
                with described(rows, f"{what}: {counts.owned + among} of {counts.rows} rows written"):
                    self.writer.write(mine, BatchWrite.of(attempt, self.key, counts.owned + among, ours))
            finish(attempt, batches, session, self.patience_s, keys=counts.keys)
            self.confirm(spark, attempt)
        return BatchReport(
            sink=attempt.of.sink,
            query=attempt.of.query,
            batch=attempt.of.batch,
            attempt=attempt.number,
            rows=counts.rows,
            owned=counts.owned,
            skipped=counts.of("D"),
            copies=counts.copies,
            bad=bad,
            taken_over=counts.of("T"),
        )


def _skipped(attempt: Attempt) -> BatchReport:
    of = attempt.of
    return BatchReport(sink=of.sink, query=of.query, batch=of.batch, attempt=attempt.number, finished_before=True)
