"""The audit's tables in a temporary database: in memory as long as they are small, in a file without a name beyond."""

from __future__ import annotations

import json
import sqlite3
from itertools import islice
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, Literal, Self

from holdfast.errors import SettingError
from holdfast.tools.audit_report.pages.reading import Found
from holdfast.tools.audit_report.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from holdfast.tools.audit_report.columns import Table
    from holdfast.tools.audit_report.pages.reading import Row, Steps, Where

_TYPES = {"string": "TEXT", "long": "INTEGER", "double": "REAL", "boolean": "INTEGER", "array<string>": "TEXT"}
#: SQLite's names of what is asked for. Numbers of whole numbers stay whole.
_HOW = {"sum": "SUM", "min": "MIN", "max": "MAX", "count": "COUNT"}
_AT_ONCE = 1000
#: Kilobytes of pages that are held in memory.
_CACHE_KB = 64_000


class SqliteTables:
    """A `TableReader` over rows that it is given."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        self._database.execute("BEGIN")  # nothing of it outlives the process
        for table in TABLES.values():
            columns = ", ".join(f'"{each.name}" {_TYPES[each.type]}' for each in table.columns)
            self._database.execute(f'CREATE TABLE "{table.name}" ({columns})')

    def add(self, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Tables' names and rows; what a row does not have is null.

        Raises:
            SettingError: there is no room for them.
        """
        coming = iter(rows)
        while some := list(islice(coming, _AT_ONCE)):
            by_table: dict[str, list[list[Any]]] = {}
            for name, row in some:
                table = TABLES[name]
                by_table.setdefault(name, []).append([_plain(row.get(each)) for each in table.names])
            for name, values in by_table.items():
                marks = ", ".join("?" for _ in TABLES[name].columns)
                try:
                    self._database.executemany(f'INSERT INTO "{name}" VALUES ({marks})', values)  # noqa: S608 - our names
                except sqlite3.OperationalError as error:
                    remedy = f"no temporary file can be written there ({error})"
                    raise SettingError("TMPDIR", gettempdir(), remedy) from error

    def rows(self, table: Table) -> Iterator[Row]:
        """All of them."""
        for values in self._database.execute(f'SELECT * FROM "{table.name}"'):  # noqa: S608 - as above
            yield _row(table, values)

    def largest(self, table: Table, by: str, at_most: int, where: Where) -> Found:
        """See `TableReader`."""
        condition, values = _condition(where)
        # Ties by the other columns, so that the same events give the same report.
        ties = [each.name for each in table.columns if each.name != by and each.type in ("string", "long")]
        order = ", ".join([f'"{by}" DESC NULLS LAST', *(f'"{name}" ASC NULLS LAST' for name in ties)])
        [[total]] = self._database.execute(f'SELECT COUNT(*) FROM "{table.name}"{condition}', values)  # noqa: S608
        chosen = f'SELECT * FROM "{table.name}"{condition} ORDER BY {order} LIMIT {at_most:d}'  # noqa: S608
        return Found([_row(table, each) for each in self._database.execute(chosen, values)], total)

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
        condition, values = _condition(where)
        made = [f'"{key}"' for key in keys]
        if steps is not None:
            made.append(f'("{steps.column}" - {steps.from_ms:d}) / {steps.step_ms:d}')
        found = f'SELECT {", ".join(made)}, {_HOW[how]}("{value}") FROM "{table.name}"{condition}'  # noqa: S608
        numbers = ", ".join(str(number) for number in range(1, len(made) + 1))
        yield from self._database.execute(f"{found} GROUP BY {numbers}", values)

    def close(self) -> None:
        """All of it is gone."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _plain(value: object) -> object:
    return json.dumps(value) if isinstance(value, list) else value


def _row(table: Table, values: Sequence[Any]) -> Row:
    return {each.name: _typed(each.type, value) for each, value in zip(table.columns, values, strict=True)}


def _typed(of: str, value: Any) -> Any:  # noqa: ANN401 - any of the types above
    if value is None:
        return None
    if of == "boolean":
        return bool(value)
    return json.loads(value) if of == "array<string>" else value


def _condition(where: Where) -> tuple[str, list[Any]]:
    """Write a condition as SQL, with its values."""
    parts, values = list[str](), list[Any]()
    for column, wanted in where.items():
        some = [wanted] if isinstance(wanted, str | int) else sorted(wanted)
        parts.append(f'"{column}" IN ({", ".join("?" for _ in some)})')
        values += some
    return f" WHERE {' AND '.join(parts)}" if parts else "", values
