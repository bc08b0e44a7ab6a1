"""Columns of the audit's tables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column. `type` is Spark's name of it: string, long, double, boolean, array<string>."""

    name: str
    type: str
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table: a folder of that name below the output."""

    name: str
    about: str
    columns: tuple[Column, ...]

    @property
    def ddl(self) -> str:
        """The columns in Spark's own language."""
        return ", ".join(f"`{each.name}` {each.type}" for each in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(each.name for each in self.columns)


def table(name: str, about: str, columns: str) -> Table:
    """`columns`: a line each, of a name, a type and words."""
    lines = [line.split(maxsplit=2) for line in columns.strip().splitlines()]
    return Table(name=name, about=about, columns=tuple(Column(name=n, type=t, about=a) for n, t, a in lines))
