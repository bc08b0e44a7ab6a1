"""The audit's tables in folders of Parquet files, by pyarrow: batch by batch, however large they are."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from holdfast.adapters.parquet._pyarrow import ac, ds, pa, pc
from holdfast.errors import SettingError
from holdfast.tools.audit_report.pages.reading import Found
from holdfast.tools.audit_report.tables import SUMMARY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.tools.audit_report.columns import Table
    from holdfast.tools.audit_report.pages.reading import Steps, Where

_OF_SPARK = {
    "string": pa.string(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "array<string>": pa.list_(pa.string()),
}


class ParquetTables:
    """A `TableReader` over a folder that has one folder a table.

    Raises:
        SettingError: it has no table `summary`, or a file in it that is no Parquet.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        if not (self._folder / SUMMARY.name).is_dir():
            raise SettingError(
                "--tables", str(folder), f"there is no folder {SUMMARY.name!r} in it: name what --output has named"
            )

    def largest(self, table: Table, by: str, at_most: int, where: Where) -> Found:
        """See `TableReader`."""
        # Ties by the other columns, so that the same tables give the same report.
        keys = [
            (by, "descending"),
            *((name, "ascending") for name in table.names if name != by and name in _sortable(table)),
        ]
        best, total = schema_of(table).empty_table(), 0
        for batch in self._scanned(table, where):
            total += batch.num_rows
            best = pa.concat_tables([best, pa.Table.from_batches([batch])])
            if best.num_rows > at_most:
                best = best.take(pc.select_k_unstable(best, k=at_most, sort_keys=keys)) if at_most else best.slice(0, 0)
        return Found(best.sort_by(keys).to_pylist(), total)

    def grouped(
        self,
        table: Table,
        keys: Sequence[str],
        *,
        value: str,
        how: Literal["sum", "min", "max", "count"],
        where: Where,
        steps: Steps | None = None,
    ) -> Iterator[tuple[Any, ...]]:
        """See `TableReader`."""
        dataset = self._dataset(table)
        if dataset is None:
            return
        names, expressions = [*keys], [pc.field(key) for key in keys]
        if steps is not None:
            names.append("step")
            since = pc.subtract(pc.field(steps.column), pa.scalar(steps.from_ms, pa.int64()))
            expressions.append(pc.divide(since, pa.scalar(steps.step_ms, pa.int64())))
        plan = [
            ac.Declaration("scan", ac.ScanNodeOptions(dataset, filter=_expression(where))),
            *([ac.Declaration("filter", ac.FilterNodeOptions(_expression(where)))] if where else []),
            ac.Declaration("project", ac.ProjectNodeOptions([*expressions, pc.field(value)], [*names, "value"])),
            ac.Declaration(
                "aggregate", ac.AggregateNodeOptions([("value", f"hash_{how}", None, "result")], keys=names)
            ),
        ]
        with _reading(self._folder / table.name):
            for batch in ac.Declaration.from_sequence(plan).to_reader():
                columns = [batch.column(name).to_pylist() for name in [*names, "result"]]
                yield from zip(*columns, strict=True)

    def _scanned(self, table: Table, where: Where) -> Iterator[Any]:
        dataset = self._dataset(table)
        if dataset is not None:
            with _reading(self._folder / table.name):
                yield from dataset.scanner(columns=list(table.names), filter=_expression(where)).to_batches()

    def _dataset(self, table: Table) -> Any:  # noqa: ANN401 - pyarrow has no types
        folder = self._folder / table.name
        if not folder.is_dir():
            return None
        files = sorted(str(each) for each in folder.rglob("*.parquet"))
        return ds.dataset(files, schema=schema_of(table), format="parquet") if files else None


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        first = str(error).splitlines()[0]
        raise SettingError("--tables", str(folder), f"it cannot be read as Parquet ({first})") from error


def schema_of(table: Table) -> Any:  # noqa: ANN401 - as above
    """Of its file."""
    return pa.schema([(each.name, _OF_SPARK[each.type]) for each in table.columns])


def _sortable(table: Table) -> frozenset[str]:
    return frozenset(each.name for each in table.columns if each.type in ("string", "long"))


def _expression(where: Where) -> Any:  # noqa: ANN401 - as above
    """None: all rows."""
    found = None
    for column, wanted in where.items():
        one = pc.field(column) == wanted if isinstance(wanted, str | int) else pc.field(column).isin(sorted(wanted))
        found = one if found is None else found & one
    return found
