"""What tasks do with names before they ask: no Spark is needed for it."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.spark.tasks import in_order

#: Digests with zeros at either end, and many copies.
_DIGESTS = st.one_of(
    st.binary(min_size=16, max_size=16),
    st.builds(lambda some: some.ljust(16, b"\0"), st.binary(max_size=2)),
    st.builds(lambda some: some.rjust(16, b"\0"), st.binary(max_size=2)),
)
_BATCHES = st.lists(st.lists(st.none() | _DIGESTS, max_size=20), max_size=4)


@given(_BATCHES, st.sampled_from([pa.binary(), pa.large_binary()]))
def test_digests_are_put_in_order_and_none_is_lost(batches: list[list[bytes | None]], kind: pa.DataType) -> None:
    given_ = [pa.RecordBatch.from_arrays([pa.array(names, kind)], ["name"]) for names in batches]
    names = [name for batch in batches for name in batch]
    told = [name for some in in_order(given_) for name in some.to_pylist()]
    assert told == sorted(name for name in names if name is not None) + [None] * names.count(None)
