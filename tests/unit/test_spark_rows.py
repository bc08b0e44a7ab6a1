"""Names in order, as a task gets them: which of them the store is asked about, and which the driver has to know."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from holdfast.adapters.spark.ordering import joined
from holdfast.adapters.spark.tasks import _of_keys, _rows_to_report, _verdicts_without_asking

A, B, C = (letter * 16 for letter in (b"a", b"b", b"c"))


@pytest.mark.parametrize(
    ("rows", "before", "told"),
    [
        ((A, B, B, B, C), None, "??==?"),
        ((A, A, B), A, "==?"),  # the batch before ended with the same key
        ((A, B), C, "??"),
        ((None, None, A, A), None, "--?="),
        ((None,), None, "-"),
        ((A,), None, "?"),
    ],
)
@pytest.mark.parametrize("as_text", [False, True])
def test_rows_of_one_key_are_told_by_their_neighbours_and_by_the_batch_before(
    rows: tuple[bytes | None, ...], before: bytes | None, told: str, *, as_text: bool
) -> None:
    names = pa.array(rows, pa.binary())
    if as_text:
        names, before = names.cast(pa.string()), before and before.decode()  # type: ignore[assignment]
    assert bytes(_verdicts_without_asking(names, before)).replace(b"\0", b"?").decode() == told


def test_a_copy_is_as_its_first_row_and_only_those_that_would_be_written_have_to_be_known() -> None:
    told = np.frombuffer(b"=N==D=T=B=", np.uint8)
    of_keys = _of_keys(told, ord("D"))
    assert bytes(of_keys.astype(np.uint8)) == b"DNNNDDTTBB"
    assert "".join("x" if each else "." for each in _rows_to_report(told, of_keys)) == "..xxx..x.."


def test_digests_are_joined_also_those_of_a_part() -> None:
    digests = pa.array([C, A, B, C], pa.binary())
    assert joined(digests) == C + A + B + C
    assert joined(digests.slice(1)) == A + B + C
    assert joined(digests.slice(1, 1)) == A
    assert joined(digests.slice(0, 0)) == b""
