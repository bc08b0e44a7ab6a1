"""Turns: lanes that may start, partitions in turn. Within a partition, the lane that has been ready for longest."""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.plugin.engine.record.entry import Lane
    from holdfast.records import Partition


class _Row:
    """The ready lanes of one partition."""

    __slots__ = ("lanes", "turns")

    def __init__(self) -> None:
        self.lanes: deque[Lane] = deque()
        #: How often it stands among those whose turn comes.
        self.turns = 0


class Turns:
    """One thread."""

    def __init__(self) -> None:
        self._rows: dict[Partition, _Row] = {}
        self._order: deque[_Row] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Lane]:
        """All lanes, by partition."""
        return chain.from_iterable(row.lanes for row in self._rows.values())

    def append(self, partition: Partition, lane: Lane) -> None:
        """Put a lane behind the others of its partition."""
        row = self._row(partition)
        row.lanes.append(lane)
        if not row.turns:
            row.turns = 1
            self._order.append(row)

    def put_first(self, partition: Partition, lane: Lane) -> None:
        """Have a lane be the next one."""
        row = self._row(partition)
        row.lanes.appendleft(lane)
        row.turns += 1
        self._order.appendleft(row)

    def pop(self) -> Lane | None:
        """Take the next lane; its partition's next turn comes after those of all others."""
        order = self._order
        while order:
            row = order.popleft()
            row.turns -= 1
            if row.lanes:
                lane = row.lanes.popleft()
                self._count -= 1
                if row.lanes and not row.turns:
                    row.turns = 1
                    order.append(row)
                return lane
        return None

    def pop_of(self, partition: Partition) -> Lane | None:
        """Take the next lane of that partition, whoever's turn it is."""
        row = self._rows.get(partition)
        if row is None or not row.lanes:
            return None
        self._count -= 1
        return row.lanes.popleft()

    def _row(self, partition: Partition) -> _Row:
        self._count += 1
        row = self._rows.get(partition)
        if row is None:
            row = self._rows[partition] = _Row()
        return row
