"""The audit's tables into folders of Parquet files, by pyarrow."""

from __future__ import annotations

import shutil
from itertools import islice
from typing import TYPE_CHECKING
from uuid import uuid4

from holdfast.adapters.parquet._pyarrow import pa, pq
from holdfast.adapters.parquet.tables import schema_of
from holdfast.errors import SettingError
from holdfast.tools.audit_report.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.tools.audit_report.columns import Table
    from holdfast.tools.audit_report.pages.reading import Row

_AT_ONCE = 10_000


def write_tables(folder: Path, rows_of: Callable[[Table], Iterator[Row]]) -> None:
    """One folder a table below it; what was there is replaced, when all of the new ones are written.

    Raises:
        SettingError: a stream's tables are there, or nothing can be written.
    """
    if any((folder / "_holdfast").glob("*")):
        remedy = "a stream writes its tables there, and would lose them: name another folder, or follow its topic"
        raise SettingError("output", str(folder), remedy)
    passing = folder / f"_writing-{uuid4().hex}"  # readers pass over names that begin with "_"
    try:
        try:
            for name, table in TABLES.items():
                (passing / name).mkdir(parents=True)
                _write(passing / name / "part-0.parquet", table, rows_of(table))
            for name in TABLES:
                shutil.rmtree(folder / name, ignore_errors=True)
                (passing / name).rename(folder / name)
        finally:
            shutil.rmtree(passing, ignore_errors=True)
    except OSError as error:
        raise SettingError("output", str(folder), f"tables cannot be written there ({error})") from error


def _write(file: Path, table: Table, rows: Iterator[Row]) -> None:
    schema = schema_of(table)
    with pq.ParquetWriter(file, schema) as writer:
        while some := list(islice(rows, _AT_ONCE)):
            writer.write_table(pa.Table.from_pylist(some, schema=schema))
