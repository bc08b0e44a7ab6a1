"""Statements: what a statement of `SqlPositions` finds, locks and changes in given rows, as SQLite says.

The statements are the shipped ones, in PostgreSQL's words. SQLite knows no locks of rows: these words are taken out,
and the rows that they name are told.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from holdfast.adapters.sql.schema import Names, schema_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Name and stripe of a row; and all of its columns, as in the table.
Key: TypeAlias = tuple[str, int]
Content: TypeAlias = tuple[Any, ...]

FOR_UPDATE, SKIP_LOCKED = " FOR UPDATE", " FOR UPDATE SKIP LOCKED"
_TABLE = Names().position
_COLUMNS = 11
_PUT = f"INSERT INTO {_TABLE} VALUES ({', '.join('?' * _COLUMNS)})"  # noqa: S608 - a name of ours


class Found(NamedTuple):
    """What one statement does to some rows."""

    rows: Sequence[Content]  #: of a SELECT
    keys: Sequence[Key]  #: the rows that it locks, in their order; of a SELECT with locks, one for each of `rows`
    changed: Mapping[Key, Content]


class Evaluator:
    """Runs single statements on rows that it is given."""

    def __init__(self) -> None:
        self._sqlite = sqlite3.connect(":memory:", isolation_level=None)
        self._sqlite.executescript(schema_of("sqlite", Names()))

    def close(self) -> None:
        """Close it."""
        self._sqlite.close()

    def find(self, statement: str, parameters: Sequence[object], view: Mapping[Key, Content]) -> Found:
        """Run a statement. Args: view: the rows that it sees."""
        ask = self._sqlite.execute
        ask(f"DELETE FROM {_TABLE}")  # noqa: S608 - a name of ours
        named = {each for each in parameters if isinstance(each, str)}  # each statement says its positions' names
        self._sqlite.executemany(_PUT, [content for key, content in view.items() if key[0] in named])
        locks, plain = FOR_UPDATE in statement, statement.replace(SKIP_LOCKED, "").replace(FOR_UPDATE, "")
        if plain.startswith("SELECT"):
            if not locks:
                return Found(ask(plain, parameters).fetchall(), (), {})
            found = ask(f"SELECT name, stripe, {plain.removeprefix('SELECT ')}", parameters).fetchall()
            return Found([each[2:] for each in found], [each[:2] for each in found], {})
        read: list[Key] = []
        if locks:  # INSERT ... SELECT ... FOR UPDATE
            clause = statement[statement.index(" FROM ") : statement.index(FOR_UPDATE)]
            read = ask(f"SELECT name, stripe{clause}", parameters[-clause.count("?") :]).fetchall()
        changed = ask(f"{plain} RETURNING name, stripe", parameters).fetchall()
        now = {each[:2]: each for each in ask(f"SELECT * FROM {_TABLE}")}  # noqa: S608 - a name of ours
        return Found((), [*read, *changed], {key: now[key] for key in changed})
