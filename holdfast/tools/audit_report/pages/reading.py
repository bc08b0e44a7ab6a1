"""The report's questions to the audit's tables, wherever they are. Each answer is bounded, however long the audit
was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from holdfast.tools.audit_report.columns import Table

    #: Column -> the value that it is to have, or the ones of which it is to have one.
    Where = Mapping[str, str | int | bool | Collection[str]]

Row = dict[str, Any]


class Found(NamedTuple):
    """Rows, and how many there are of that kind in all."""

    rows: list[Row]
    total: int


class Steps(NamedTuple):
    """A column of times, cut into even steps from a moment on."""

    column: str
    from_ms: int
    step_ms: int


class TableReader(Protocol):
    """The audit's tables. A table that was not written has no rows."""

    def largest(self, table: Table, by: str, at_most: int, where: Where) -> Found:
        """The rows with the highest values of that column, the highest first; those without one come last."""
        ...

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
        """The keys' values, with `steps` the number of the step (from 0 on), and the sum, minimum, maximum or number of
        the column's values that are not null. In no order."""
        ...
