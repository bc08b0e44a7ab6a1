"""Decides whether a batch is a replay of the finished batch with its number.

Spark repeats the last batch if the driver died before its commit. But query name and number do not identify a batch: a
checkpoint that was deleted, restored or shared gives other rows the same number. A replay is recognised by its keys,
which are all done. Therefore they are looked up before a batch is skipped. If they cannot be looked up, the batch is a
replay only if Spark tells the same id of the query; if it tells none, the answer is unknown.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.adapters.spark.badrows import with_and_without_key
from holdfast.adapters.spark.keys import with_key
from holdfast.adapters.spark.marking import spread
from holdfast.adapters.spark.prints import print_of
from holdfast.adapters.spark.session import UNTOLD, described
from holdfast.adapters.spark.tasks import COUNTED, NAME, PRINTED, counting, printing
from holdfast.adapters.spark.values import BatchRefused, BatchWrite, Keeping
from holdfast.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.spark._pyspark import DataFrame
    from holdfast.adapters.spark.badrows import BadRows
    from holdfast.adapters.spark.store import StoreAt
    from holdfast.adapters.spark.values import Writer
    from holdfast.dedup.spark_batches import Attempt, Finished

log = logging.getLogger("holdfast.spark")

_NO_KEYS = print_of(())  # the print of every batch without keys, so it proves nothing


def is_replay(
    rows: DataFrame,
    done: Finished,
    *,
    at: StoreAt,
    origin: str,
    key: Sequence[str],
    writer: Writer,
    patience_s: float,
    bad_rows: BadRows | None = None,
) -> bool:
    """Whether the rows are a replay of the batch that this attempt has finished. False: another batch, which may be
    written beside it.

    Raises:
        BatchRefused: another batch, or it is not known, and the writer would replace the finished rows by these.
        StoreUnavailable: Redis does not answer.
    """
    attempt, keys = done.attempt, False
    same = done.origin == origin if done.origin and origin else None
    unsure = same is None and not (bad_rows and bad_rows.tells)
    if not done.kept and done.keys:
        keys = _same_keys(rows, done, at, key)
        if not keys and not isinstance(writer, Keeping):
            raise BatchRefused(
                f"batch {attempt.of.batch} of sink {attempt.of.sink!r} was not written: a batch of this number was "
                "finished that had other keys, and Redis does not remember them any more: give query= another name"
            )
    if not done.kept:
        same = True if unsure and keys and done.keys != _NO_KEYS else same
        return _decide_by_rows_in_sink(rows, attempt, key, writer, bad_rows, same=same, keys=keys)
    left, bad = _not_done(rows, at, attempt.of.sink, key, patience_s)
    # Some of its keys may have been done before the batch, and expired since; or the finishing query is not known.
    if (left or (bad and unsure)) and done.keys != _NO_KEYS and _same_keys(rows, done, at, key):
        left, same = 0, True if unsure or same is False else same
    if bad_rows:
        batch = BatchWrite.of(attempt, tuple(key), 0)
        bad = bad_rows.left(rows, key, bad, batch, attempt, same=same)
    if not left and not bad:
        return True
    said = (
        f"batch {attempt.of.batch} of sink {attempt.of.sink!r} is not the one that query {attempt.of.query} has "
        f"finished by attempt {attempt.number}: {left} of its rows have keys that are not done, and {bad} have none. "
        f"{_cause(done.origin, origin)}"
    )
    if writer.safe != "upsert" and not isinstance(writer, Keeping):
        raise BatchRefused(f"{said}. Nothing was written: give query= another name, and keys that are done are dropped")
    log.warning("%s. What is not done is written", said)
    return False


def require_replay(
    rows: DataFrame, attempt: Attempt, key: Sequence[str], writer: Writer, bad_rows: BadRows | None = None
) -> None:
    """Check a batch whose number the sink has as finished, and Redis has lost. Raises BatchRefused: another batch."""
    _decide_by_rows_in_sink(rows, attempt, key, writer, bad_rows, same=None)


def _decide_by_rows_in_sink(
    rows: DataFrame,
    attempt: Attempt,
    key: Sequence[str],
    writer: Writer,
    bad_rows: BadRows | None,
    *,
    same: bool | None,
    keys: bool = False,
) -> bool:
    """Decide by the rows in the sink. Returns True, or raises BatchRefused.

    Args:
        rows: the batch.
        attempt: the attempt that has finished the number.
        key: the columns of the business key.
        writer: the sink's writer.
        bad_rows: the setting `bad_rows`.
        same: whether the same Spark query has finished it; None: not known.
        keys: whether the finished batch had exactly these keys.
    """
    where = f"batch {attempt.of.batch} of sink {attempt.of.sink!r}"
    remedy = "give query= another name: what is in the sink already is written again, as Redis has forgotten its keys"
    if bad_rows:
        good, bad = with_and_without_key(rows, key)
        if left := bad_rows.left(rows, key, bad.count(), BatchWrite.of(attempt, tuple(key), 0), same=same):
            raise BatchRefused(
                f"{where} was not written: a batch of this number is finished, Redis does not remember its keys any "
                f"more, and {left} rows without a key were not written with it: {remedy}"
            )
        rows = good
    if isinstance(writer, Keeping):
        if left := writer.lacking(rows, BatchWrite.of(attempt, tuple(key), 0)):
            raise BatchRefused(
                f"{where} was not written: a batch of this number is finished, Redis does not remember its keys any "
                f"more, and {left} of these rows are not in the sink: the checkpoint was deleted or put back, or "
                f"another stream has the same query= name: {remedy}"
            )
    elif not same and not keys:
        by = "by another Spark query" if same is False else f"before by an unknown query ({UNTOLD})"
        raise BatchRefused(
            f"{where} was not written: a batch of this number was finished {by}, and Redis does not remember its keys "
            f"any more: {remedy}"
        )
    else:  # evaluate the rows all the same: stateful operators above the sink need it for the next batch
        with described(rows, f"holdfast: batch {attempt.of.batch} evaluated, and not written again"):
            rows.write.format("noop").mode("overwrite").save()
    return True


def _same_keys(rows: DataFrame, done: Finished, at: StoreAt, key: Sequence[str]) -> bool:
    """Whether the rows have exactly the keys of the finished batch. False also if its print was not stored."""
    if not done.keys:
        return False
    sink = done.attempt.of.sink
    names = spread(with_key(rows, key, NAME, scope=sink if at.hash_keys else None), at)
    with described(rows, f"holdfast: keys of sink {sink} compared with those of the batch that was finished before"):
        return print_of(each.part for each in names.mapInArrow(printing(at), PRINTED).collect()) == done.keys


def _not_done(rows: DataFrame, at: StoreAt, sink: str, key: Sequence[str], patience_s: float) -> tuple[int, int]:
    """(rows whose key is not done, rows without a key)."""
    names = with_key(rows, key, NAME).select(NAME)
    with described(rows, f"holdfast: keys of sink {sink} looked up, whose batch was finished before"):
        found = names.mapInArrow(counting(at, sink, patience_s), COUNTED).collect()
    failed = next((each.failed for each in found if each.failed), "")
    if failed:
        raise StoreUnavailable(f"keys of sink {sink!r} were not looked up: {failed}")
    return sum(each.left for each in found), sum(each.bad for each in found)


def _cause(before: str, now: str) -> str:
    if not before or not now:
        return "Its checkpoint was deleted or put back, or another stream has the same query= name"
    if before != now:
        return (
            f"That one was of Spark's query {before}, this one is of {now}: the checkpoint was deleted, or another "
            "stream has the same query= name"
        )
    return f"Both are of Spark's query {now}: its checkpoint was put back, or what it had noted of batches was deleted"
