"""What tasks do with names before they ask: no Spark is needed for it."""

from __future__ import annotations

import tracemalloc
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.spark.ordering import AT_ONCE, in_order
from holdfast.adapters.spark.prints import KeysPrint, print_of
from holdfast.adapters.spark.store import Patience

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

#: Digests with zeros at either end, and many copies.
_DIGESTS = st.one_of(
    st.binary(min_size=16, max_size=16),
    st.builds(lambda some: some.ljust(16, b"\0"), st.binary(max_size=2)),
    st.builds(lambda some: some.rjust(16, b"\0"), st.binary(max_size=2)),
)
_BATCHES = st.lists(st.lists(st.none() | _DIGESTS, max_size=20), max_size=8)


@given(_BATCHES, st.sampled_from([pa.binary(), pa.large_binary()]), st.sampled_from([1, 5, 20, AT_ONCE]))
def test_digests_are_put_in_order_and_none_is_lost(
    batches: list[list[bytes | None]], kind: pa.DataType, at_once: int
) -> None:
    given_ = [pa.RecordBatch.from_arrays([pa.array(names, kind)], ["name"]) for names in batches]
    names = [name for batch in batches for name in batch]
    told = [name for some in in_order(given_, at_once) for name in some.to_pylist()]
    assert told == sorted(name for name in names if name is not None) + [None] * names.count(None)


def _drawn(count: int, *, one_key: bool = False) -> Iterator[pa.RecordBatch]:
    random = np.random.default_rng(1)
    for _ in range(0, count, 10_000):
        digests = bytes(160_000) if one_key else random.bytes(160_000)
        names = pa.Array.from_buffers(pa.binary(16), 10_000, [None, pa.py_buffer(digests)])
        yield pa.RecordBatch.from_arrays([names.cast(pa.binary())], ["name"])


def _peak(rows: Iterator[pa.RecordBatch]) -> int:
    """Bytes of Python's and numpy's, at the most."""
    tracemalloc.start()
    try:
        deque(in_order(rows), maxlen=0)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_task_has_as_much_in_memory_for_a_large_batch_as_for_a_small_one() -> None:
    bound = 3 * 16 * AT_ONCE  # in order, and twice as much for a moment
    assert _peak(_drawn(4 * AT_ONCE)) < bound
    assert _peak(_drawn(2 * AT_ONCE, one_key=True)) < bound
    nulls = pa.RecordBatch.from_arrays([pa.nulls(10_000, pa.binary())], ["name"])
    arrays = in_order(nulls for _ in range(100))
    assert max(map(len, arrays)) <= 100_000


def test_what_waits_on_the_disk_lies_beside_what_spark_spills_and_goes_with_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    arrays = in_order(_drawn(20_000), 10_000)
    next(arrays)
    assert _open_below(tmp_path)  # it has no name, so it is gone however the process ends
    assert not list(tmp_path.iterdir())
    arrays.close()  # type: ignore[attr-defined]
    assert not _open_below(tmp_path)


def _open_below(folder: Path) -> list[str]:
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(each.readlink()))
        except OSError:
            continue  # the one that lists them
    return [each for each in found if each.startswith(str(folder))]


def test_the_calls_of_a_task_share_its_patience_and_those_that_need_not_wait_use_none_of_it() -> None:
    """Else a task with many keys in other hands would wait for each of its calls as long as is said for all."""
    patience, asked = Patience(0.2), []

    def ask(answer: str) -> str:
        asked.append(answer)
        return answer

    for _ in range(1000):
        assert patience.ask(lambda: ask("done"), lambda said: said == "busy") == "done"
    asked.clear()
    assert patience.ask(lambda: ask("busy"), lambda said: said == "busy") == "busy"
    assert len(asked) > 1
    asked.clear()
    assert patience.ask(lambda: ask("busy"), lambda said: said == "busy") == "busy"
    assert len(asked) == 1


def _print(*batches: pa.Array) -> str:
    made = KeysPrint()
    for each in batches:
        made.add(each)
    return print_of([made.number, 0])


@given(st.lists(st.text(max_size=5), unique=True), st.integers(0, 9), st.lists(st.text(max_size=5), unique=True))
def test_a_print_is_of_the_keys_however_they_are_cut_into_batches(keys: list[str], cut: int, others: list[str]) -> None:
    names, other = pa.array(keys, pa.string()), pa.array(others, pa.string())
    assert _print(names) == _print(names.slice(0, cut), names.slice(cut)) == _print(pa.concat_arrays([names]))
    assert (_print(names) == _print(other)) == (keys == others)
    assert _print(names.cast(pa.binary())) == _print(names)
