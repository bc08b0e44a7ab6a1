"""Turns: lanes that may start. Handlers take turns, of each handler its partitions, and within a partition the lane
that has been ready for longest comes first.

Handlers first: a topic whose handler is slow has a backlog in all of its partitions, and would take nearly all turns of
one whose handler is quick.
"""

from __future__ import annotations

from collections import defaultdict, deque
from itertools import chain
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from holdfast.plugin.engine.record.entry import Lane
    from holdfast.records import Partition


class _Row:
    """The ready lanes of one partition."""

    __slots__ = ("lanes", "turns")

    def __init__(self) -> None:
        self.lanes: deque[Lane] = deque()
        #: How often it stands among those whose turn comes.
        self.turns = 0

    def __bool__(self) -> bool:
        return bool(self.lanes)


class _Share:
    """The partitions of one handler that have ready lanes."""

    __slots__ = ("count", "round", "rows", "turns")

    def __init__(self) -> None:
        self.rows: defaultdict[Partition, _Row] = defaultdict(_Row)
        self.round = _Round[_Row]()
        #: How many lanes; and as above.
        self.count = self.turns = 0

    def __bool__(self) -> bool:
        return self.count > 0


_Member = TypeVar("_Member", _Row, _Share)


class _Round(Generic[_Member]):
    """A round of members. Each stands here once, and once more for each time that it was put first."""

    __slots__ = ("_order",)

    def __init__(self) -> None:
        self._order: deque[_Member] = deque()

    def give(self, member: _Member) -> None:
        """Have its turn come after those of all others, unless it has one."""
        if not member.turns:
            member.turns = 1
            self._order.append(member)

    def give_first(self, member: _Member) -> None:
        """Have it be the next."""
        member.turns += 1
        self._order.appendleft(member)

    def next(self) -> _Member | None:
        """Take the next that has something."""
        while self._order:
            member = self._order.popleft()
            member.turns -= 1
            if member:
                return member
        return None


class Turns:
    """One thread. A handler is known by its name."""

    def __init__(self) -> None:
        self._shares: defaultdict[Hashable, _Share] = defaultdict(_Share)
        self._round = _Round[_Share]()

    def __len__(self) -> int:
        return sum(share.count for share in self._shares.values())

    def __iter__(self) -> Iterator[Lane]:
        """All lanes, by partition."""
        rows = chain.from_iterable(share.rows.values() for share in self._shares.values())
        return chain.from_iterable(row.lanes for row in rows)

    def append(self, handler: Hashable, partition: Partition, lane: Lane, *, ahead: bool = False) -> None:
        """Put a lane behind the others of its partition, or ahead of them."""
        share, row = self._one_more(handler, partition)
        (row.lanes.appendleft if ahead else row.lanes.append)(lane)
        share.round.give(row)
        self._round.give(share)

    def put_first(self, handler: Hashable, partition: Partition, lane: Lane) -> None:
        """Have a lane be the next one."""
        share, row = self._one_more(handler, partition)
        row.lanes.appendleft(lane)
        share.round.give_first(row)
        self._round.give_first(share)

    def pop(self) -> Lane | None:
        """Take the next lane; the next turns of its partition and its handler come after those of all others."""
        share = self._round.next()
        row = share.round.next() if share else None
        if share is None or row is None:
            return None
        lane = row.lanes.popleft()
        share.count -= 1
        if row:
            share.round.give(row)
        if share:
            self._round.give(share)
        return lane

    def pop_of(self, handler: Hashable, partition: Partition) -> Lane | None:
        """Take the next lane of that handler and partition, out of turn."""
        share = self._shares.get(handler)
        row = share.rows.get(partition) if share else None
        if share is None or not row:
            return None
        share.count -= 1
        return row.lanes.popleft()

    def _one_more(self, handler: Hashable, partition: Partition) -> tuple[_Share, _Row]:
        """The places of a lane that is added."""
        share = self._shares[handler]
        share.count += 1
        row = share.rows[partition]
        return share, row
