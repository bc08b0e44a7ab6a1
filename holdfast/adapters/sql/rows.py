"""Rows: the statements on holdfast_position, and a row as a value."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from holdfast.adapters.sql.changes import Statement
from holdfast.adapters.sql.offsets import packed, unpacked
from holdfast.dedup.claims import Acquired
from holdfast.dedup.offset_set import OffsetSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.sql.changes import Change
    from holdfast.adapters.sql.database import Database, Transaction
    from holdfast.adapters.sql.schema import Names

_COLUMNS = "name, stripe, owner, free, epoch, born_ms, version, begun, watermark, done, again"


class Row(NamedTuple):
    """One row, as read."""

    name: str
    stripe: int
    owner: UUID | None
    free: bool
    epoch: int
    born_ms: int
    version: int
    begun: bool
    watermark: int
    done: bytes
    again: int

    @property
    def above(self) -> OffsetSet:
        """The offsets that are done above this row's watermark."""
        return unpacked(self.watermark, self.done)


class Position:
    """All rows of one partition. Args: rows: by their stripes."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows

    @property
    def first(self) -> Row:
        """The row that each partition has."""
        return self.rows[0]

    @property
    def head(self) -> Row:
        """The first row, with a version that rises with each change of any of them."""
        return self.first._replace(version=sum(row.version for row in self.rows))

    @cached_property
    def watermark(self) -> int:
        """The first offset that is not done."""
        return self._above.first_missing(max(row.watermark for row in self.rows))

    @property
    def done(self) -> OffsetSet:
        """The offsets above the watermark that are done: a new set each time."""
        found = OffsetSet(self._above)
        found.remove_below(self.watermark)
        return found

    @cached_property
    def _above(self) -> OffsetSet:
        found = OffsetSet()
        for row in self.rows:
            if row.done:  # most have none, and a takeover reads many
                found.update(row.above)
        return found

    @property
    def end(self) -> int:
        """The end of all that was ever done."""
        return max(self.watermark, self.done.end, *(row.again for row in self.rows))

    def acquired(self, epoch: int, born_ms: int) -> Acquired:
        """The reply to an acquire that has given it this epoch."""
        return Acquired(
            epoch,
            self.watermark,
            self.done,
            frozenset(),
            born_ms,
            max(row.again for row in self.rows),
            begun=any(row.begun for row in self.rows),
        )


class Statements:
    """The statements, in the words of one database."""

    def __init__(self, database: Database, names: Names) -> None:
        self._of = database
        table = names.position
        self._read = f"SELECT {_COLUMNS} FROM {table} WHERE name IN ({{}}) ORDER BY name, stripe"  # noqa: S608 - a name of ours
        self._stripes = f"SELECT {_COLUMNS} FROM {table} WHERE name = ? AND stripe IN ({{}}) ORDER BY stripe"  # noqa: S608 - as above
        self._insert = (
            f"INSERT INTO {table} ({_COLUMNS}) VALUES (?, 0, NULL, ?, 0, 0, 0, ?, 0, ?, 0) ON CONFLICT DO NOTHING"  # noqa: S608 - as above
        )
        self._first = f"SELECT name FROM {table} WHERE name IN ({{}}) AND stripe = 0 ORDER BY name"  # noqa: S608 - as above
        self._count = f"SELECT name, count(*) FROM {table} WHERE name IN ({{}}) GROUP BY name"  # noqa: S608 - as above
        self._take = f"UPDATE {table} SET owner = ?, free = ?, epoch = ?, born_ms = ? WHERE name = ?"  # noqa: S608 - as above
        self._drop = (
            f"UPDATE {table} SET version = version + 1, begun = ?, watermark = ?, done = ?, again = ? WHERE name = ?"  # noqa: S608 - as above
        )
        self._mark = (
            f"UPDATE {table} SET version = version + 1, begun = ?, watermark = ?, done = ? "  # noqa: S608 - as above
            "WHERE name = ? AND stripe = ? AND owner = ? AND version = ?"
        )
        self._others = f" AND (SELECT count(*) FROM {table} AS o WHERE o.name = ? AND ({{}})) = {{}}"  # noqa: S608 - as above
        self._add = (
            f"INSERT INTO {table} ({_COLUMNS}) SELECT name, ?, owner, ?, epoch, born_ms, 0, ?, 0, ?, 0 "  # noqa: S608 - as above
            f"FROM {table} WHERE name = ? AND stripe = 0 AND owner = ?{{}} ON CONFLICT DO NOTHING"
        )
        self._claim = f"INSERT INTO {names.key} (scope, key) VALUES {{}} ON CONFLICT DO NOTHING RETURNING scope, key"  # noqa: S608 - as above
        self._free = f"UPDATE {table} SET free = ? WHERE name = ? AND stripe = 0 AND owner = ?"  # noqa: S608 - as above

    def marking(self, name: str, owner: UUID, change: Change) -> Statement:
        """Change a row: compare and set, of this owner and of the version that it knows, while all other rows have what
        they had acknowledged. A watermark rests on them."""
        row = (True, change.watermark, packed(change.watermark, change.done), name, change.stripe)
        known = (*row, self._of.owner(owner), change.version)
        if not change.others:
            return Statement(self._mark, known)
        each = " OR ".join(["o.stripe = ? AND o.version >= ?"] * len(change.others))
        versions = (number for other in change.others for number in other)
        return Statement(self._mark + self._others.format(each, len(change.others)), (*known, name, *versions))

    def adding(self, name: str, owner: UUID, stripe: int) -> Statement:
        """Make a further row, empty, where this owner has the first. It locks the first one: see `locked`."""
        text = self._add.format(self._of.for_update)
        return Statement(text, (stripe, False, False, b"", name, self._of.owner(owner)))

    def claiming(self, keys: Sequence[tuple[str, str]]) -> Statement:
        """Note keys; found are those that are new. Two transactions with several keys take them in one order."""
        ordered = sorted(set(keys))
        return Statement(
            self._claim.format(", ".join(["(?, ?)"] * len(ordered))), [each for pair in ordered for each in pair]
        )

    def freeing(self, name: str, owner: UUID) -> Statement:
        """Note that an owner has let a position go."""
        return Statement(self._free, (True, name, self._of.owner(owner)))

    def read(self, tx: Transaction, names: Sequence[str], lock: str = "") -> dict[str, Position]:
        """The positions that are there. Args: lock: `Database.for_update` or `skip_locked`."""
        found: dict[str, list[Row]] = {}
        for each in tx.ask(self._read.format(_places(names)) + lock, names):
            row = row_of(each)
            found.setdefault(row.name, []).append(row)
        return {name: Position(rows) for name, rows in found.items()}

    def read_stripes(self, tx: Transaction, name: str, stripes: Sequence[int]) -> Position | None:
        """Some rows of a position, locked: what holds one is waited for. None: they are not there."""
        text = f"{self._stripes.format(_places(stripes))}{self._of.for_update}"
        found = [row_of(each) for each in tx.ask(text, (name, *stripes))]
        return Position(found) if len(found) == len(stripes) else None

    def locked(self, tx: Transaction, names: Sequence[str]) -> dict[str, Position]:
        """The positions of all these names, in order; those that are new are made. Their rows are locked.

        First rows first: a further row is made under the lock of the first one. A read of all of them that waits for
        that lock would not see a row that was made, and used, meanwhile.
        """
        self._lock_first(tx, names, self._of.for_update)
        found = self.read(tx, names, self._of.for_update)
        return found | self._made(tx, [name for name in names if name not in found])

    def not_held(self, tx: Transaction, names: Sequence[str]) -> dict[str, Position]:
        """Do the same without the positions of which another transaction holds a row."""
        first = self._lock_first(tx, names, self._of.skip_locked)
        all_rows = dict(tx.ask(self._count.format(_places(names)), names))
        found = self.read(tx, names, self._of.skip_locked)
        free = {
            name: position for name, position in found.items() if name in first and len(position.rows) == all_rows[name]
        }
        return free | self._made(tx, [name for name in names if name not in all_rows])

    def _lock_first(self, tx: Transaction, names: Sequence[str], lock: str) -> set[str]:
        return {name for (name,) in tx.ask(self._first.format(_places(names)) + lock, names)}

    def take(self, tx: Transaction, taken: Sequence[tuple[UUID, int, int, str]]) -> None:
        """Give positions a new owner. Args: taken: owner, epoch, birth and name of each."""
        rows = [(self._of.owner(owner), False, epoch, born_ms, name) for owner, epoch, born_ms, name in taken]
        tx.change_each(self._take, rows)

    def drop(self, tx: Transaction, name: str, offset: int, again: int) -> None:
        """Have all below the offset done, and nothing above."""
        tx.change_each(self._drop, [(True, offset, b"", again, name)])

    def _made(self, tx: Transaction, names: Sequence[str]) -> dict[str, Position]:
        if not names:
            return {}
        tx.change_each(self._insert, [(name, True, False, b"") for name in sorted(names)])
        return self.read(tx, names, self._of.for_update)


def _places(names: Sequence[object]) -> str:
    return ", ".join("?" * len(names))


def row_of(found: tuple[Any, ...]) -> Row:
    """A row of the table, with all of its columns, as a value."""
    name, stripe, owner, free, epoch, born_ms, version, begun, watermark, done, again = found
    owner = UUID(owner) if isinstance(owner, str) else owner
    return Row(name, stripe, owner, bool(free), epoch, born_ms, version, bool(begun), watermark, done, again)
