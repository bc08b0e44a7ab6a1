"""Functions for `mapInArrow`, which run on executors, made from values that pickle.

A task must not fail unless its rows are at fault: an error on an executor becomes a stage that failed four times, with
the cause in the middle of a Java trace. Therefore an error of the store is returned in the column of verdicts, and the
driver raises it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.adapters.spark._pyspark import np, pa, pc, types
from holdfast.adapters.spark.keys import key_texts
from holdfast.adapters.spark.ordering import in_order, joined
from holdfast.adapters.spark.prints import KeysPrint
from holdfast.adapters.spark.store import Patience
from holdfast.dedup.spark_batches import BatchVerdict
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from holdfast.adapters.spark.store import StoreAt
    from holdfast.dedup.redis_spark_batches import RedisBatches
    from holdfast.dedup.spark_batches import Attempt

    Batches = Iterable[pa.RecordBatch]

#: Verdicts besides those of BatchVerdict: a row without a key; a further row of a key that the batch has already; "!"
#: followed by the text of the store's error.
NO_KEY = "-"
COPY = "="
FAILED = "!"
#: In place of a verdict: the row has the task's part of the print of the batch's keys, not a number of rows.
PRINT = "#"
#: Columns: the name of a row's key in the store (its text or its digest); and those of `told_schema`.
NAME = "__hf_name"
VERDICT, ROWS = "verdict", "rows"
TOLD = [NAME, VERDICT, ROWS]
#: Keys in one call, which blocks Redis for about 2 ms.
_CALL = 1000
_NEW, _TAKEN_OVER, _DONE, _BUSY = (
    ord(each.value) for each in (BatchVerdict.NEW, BatchVerdict.TAKEN_OVER, BatchVerdict.DONE, BatchVerdict.BUSY)
)
_COPY, _NO_KEY = ord(COPY), ord(NO_KEY)


def told_schema(at: StoreAt) -> types.StructType:
    """The schema of the result of `claiming`. Each task returns the number of rows for each verdict. It also returns
    the names of keys, with null rows, that the driver must know: done keys, and keys with copies in the batch."""
    name = types.BinaryType() if at.hash_keys else types.StringType()
    return types.StructType().add(NAME, name).add(VERDICT, types.StringType()).add(ROWS, types.LongType())


def claiming(at: StoreAt, attempt: Attempt, patience_s: float) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Make the function that claims names, and returns rows of `told_schema`. Texts come sorted; digests are sorted
    here.

    Args:
        at: the store.
        attempt: the attempt that claims.
        patience_s: how long all calls of a task together may wait for busy keys, and for a store that does not answer.
    """

    def claim(rows: Batches) -> Iterator[pa.RecordBatch]:
        patience = Patience(patience_s)
        counts, keys_print = np.zeros(256, np.int64), KeysPrint()
        failed, last, of_last = "", None, _NO_KEY
        kind = _name_type(at)
        for names in _arrays(rows, at):
            if failed or not len(names):
                continue
            told = _verdicts_without_asking(names, last)
            new = told == 0
            asked = names.filter(pa.array(new))
            keys_print.add(asked)
            try:
                said = _claimed(patience.ask(at.batches), attempt, asked, patience)
            except StoreError as error:
                failed = FAILED + str(error)
                continue
            told[new] = np.frombuffer(said, np.uint8)
            counts += np.bincount(told, minlength=256)
            of_keys = _of_keys(told, of_last)
            last, of_last = names[-1].as_py(), int(of_keys[-1])
            known = _rows_to_report(told, of_keys)
            if known.any():
                yield _rows(names.filter(pa.array(known)), _as_texts(told[known]), pa.nulls(known.sum(), pa.int64()))
        found = {chr(letter): int(counts[letter]) for letter in counts.nonzero()[0]} | ({failed: 1} if failed else {})
        found[PRINT] = keys_print.number
        nobody = pa.repeat(pa.scalar("").cast(kind), len(found))  # not null, since joins skip nulls
        yield _rows(nobody, pa.array(found, pa.string()), pa.array(found.values(), pa.int64()))

    return claim


def printing(at: StoreAt) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Make the function that returns the task's part of the print of names, without a call to the store."""

    def tell(rows: Batches) -> Iterator[pa.RecordBatch]:
        keys_print, last = KeysPrint(), None
        for names in _arrays(rows, at):
            if len(names):
                keys_print.add(names.filter(pa.array(_verdicts_without_asking(names, last) == 0)))
                last = names[-1].as_py()
        yield pa.RecordBatch.from_pydict({"part": [keys_print.number]})

    return tell


#: The schema of the result of `printing`.
PRINTED = "part bigint"


def _name_type(at: StoreAt) -> pa.DataType:
    """The Arrow type of names. A conf of Spark may give the large variant, which is cast to it."""
    return pa.binary() if at.hash_keys else pa.string()


def _arrays(rows: Batches, at: StoreAt) -> Iterator[pa.Array]:
    return in_order(rows) if at.hash_keys else (batch.column(0).cast(_name_type(at)) for batch in rows)


def _verdicts_without_asking(names: pa.Array, last: object) -> np.ndarray:
    """A verdict for each of these sorted names; 0: the store must be asked. `last`: the name before them."""
    told = np.where(names.is_valid().to_numpy(zero_copy_only=False), 0, _NO_KEY).astype(np.uint8)
    same = pc.equal(names.slice(1), names.slice(0, len(names) - 1))  # null where one of the two is
    told[1:][same.fill_null(False).to_numpy(zero_copy_only=False)] = _COPY
    if last is not None and names[0].as_py() == last:
        told[0] = _COPY
    return told


def _of_keys(told: np.ndarray, of_last: int) -> np.ndarray:
    """For each row the verdict on its key: that of the key's first row. `of_last`: the verdict on the key before."""
    first = np.maximum.accumulate(np.where(told == _COPY, -1, np.arange(len(told))))
    return np.where(first < 0, of_last, told[first])


def _rows_to_report(told: np.ndarray, of_keys: np.ndarray) -> np.ndarray:
    """Which rows' names the driver must know; see `told_schema`. Not copies of a done key: its first row is known."""
    written = (of_keys == _NEW) | (of_keys == _TAKEN_OVER)
    known: np.ndarray = (told == _DONE) | ((told == _COPY) & written)
    return known


def _rows(*columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns), TOLD)


def _claimed(batches: RedisBatches, attempt: Attempt, names: pa.Array, patience: Patience) -> bytes:
    """Claim keys; the verdicts, a byte each. Busy keys are claimed again.

    Raises:
        StoreUnavailable, StoreRefused: the store's error.
    """
    if batches.takes_digests:
        digests = joined(names)
        calls = [digests[first : first + 16 * _CALL] for first in range(0, len(digests), 16 * _CALL)]
        return b"".join(_claim_patiently(partial(batches.claim_digests, attempt), call, patience) for call in calls)
    keys = names.to_pylist()
    texts = [keys[first : first + _CALL] for first in range(0, len(keys), _CALL)]
    return b"".join(_claim_patiently(partial(batches.claim_texts, attempt), some, patience) for some in texts)


def _claim_patiently(claim: Callable[[Any], bytes], keys: Any, patience: Patience) -> bytes:  # noqa: ANN401 - of either layout
    found = b""

    def ask() -> bytes:
        nonlocal found
        now = claim(keys)  # claim all again: keys that this attempt has stay its own
        found = bytes(new if old == _BUSY else old for old, new in zip(found, now, strict=True)) if found else now
        return found

    return patience.ask(ask, lambda said: _BUSY in said)


def _as_texts(told: np.ndarray) -> pa.Array:
    """Texts of one letter each."""
    offsets = np.arange(len(told) + 1, dtype=np.int32)
    return pa.StringArray.from_buffers(len(told), pa.py_buffer(offsets), pa.py_buffer(told))


def keeping(at: StoreAt, scope: str, columns: Sequence[str]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Make the function that keeps rows whose keys are not done, and rows without a key."""

    def keep(rows: Batches) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            keys = key_texts(batch, columns)
            done = _done(at.batches(), scope, keys)
            yield batch.filter(pa.array([key not in done for key in keys]))

    return keep


def counting(at: StoreAt, scope: str, patience_s: float) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Make the function that returns one row for each task: the number of keys that are not done, the number of nulls,
    and the text of the store's error, if there was one."""

    def count(rows: Batches) -> Iterator[pa.RecordBatch]:
        patience = Patience(patience_s)
        left, bad, failed = 0, 0, ""
        for batch in rows:
            if failed:
                continue  # Spark requires that the whole input is read
            keys = batch.column(0).to_pylist()
            try:
                done = patience.ask(partial(_done_at, at, scope, keys))
            except StoreError as error:
                failed = str(error)
            else:
                left += sum(key is not None and key not in done for key in keys)
                bad += keys.count(None)
        yield pa.RecordBatch.from_pydict({"left": [left], "bad": [bad], "failed": [failed]})

    return count


#: The schema of the result of `counting`.
COUNTED = "left bigint, bad bigint, failed string"


def _done_at(at: StoreAt, scope: str, keys: Sequence[str | None]) -> set[str]:
    return _done(at.batches(), scope, keys)


def _done(batches: RedisBatches, scope: str, keys: Sequence[str | None]) -> set[str]:
    """Find which of the keys are done. Raises StoreUnavailable, StoreRefused."""
    asked = list({key for key in keys if key is not None})
    done: set[str] = set()
    for first in range(0, len(asked), _CALL):
        some = asked[first : first + _CALL]
        done |= {key for key, is_done in zip(some, batches.done(scope, some), strict=True) if is_done}
    return done
