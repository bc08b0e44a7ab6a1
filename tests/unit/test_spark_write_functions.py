"""A function of the user's that writes a batch: what it has not written does not count."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.adapters.spark.writers import writer_of
from holdfast.errors import SettingError


class DataFrameWriter:
    """Named as Spark's, which no session is needed for."""


async def later(*_: object) -> None: ...


@pytest.mark.parametrize("returned", [later, lambda: (each for each in [1]), DataFrameWriter])
def test_a_write_that_was_begun_and_not_ended_is_an_error(returned: Any) -> None:
    writer = writer_of(lambda *_: returned(), safe="upsert")
    with pytest.raises(SettingError, match="nothing is written"):
        writer.write(None, None)  # type: ignore[arg-type]  # handed on


def test_a_function_whose_call_writes_nothing_is_refused() -> None:
    with pytest.raises(SettingError, match="nothing awaits it"):
        writer_of(later, safe="upsert")


def test_what_a_function_returns_otherwise_does_not_matter() -> None:
    writer_of(lambda *_: 17, safe="upsert").write(None, None)  # type: ignore[arg-type]  # handed on
