"""Gives each member its number of partitions with the fewest moves, along chains of members.

The problem is a minimum-cost flow. Its nodes are kinds of topics (those with the same subscribers), members, and a
shared node for members within their bounds, so that one may have more if another has less. Giving a partition of a kind
to a member costs 1, taking one away costs 0, and undoing a move takes its cost back: the total cost is the number of
moves. Starting without moves, partitions flow from nodes with too many to nodes with too few along cheapest paths, with
potentials that keep all reduced costs at 0 or above (successive shortest paths: Ahuja, Magnanti and Orlin, Network
Flows, chapter 9). The result is therefore optimal.
"""

from __future__ import annotations

import heapq
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The cost of a move. The bits below count steps: paths are compared by moves, then by steps.
_MOVE = 1 << 32
_STEPS = _MOVE - 1
_FAR = 1 << 100


class Chains:
    """A flow problem, and its solution so far.

    Args:
        wants: kind -> the members that subscribe to it.
        counts: kind -> its partitions.
        had: member -> kind -> how many the member had.
        low, high: member -> the least and the most partitions that it gets; they differ by one at most.
    """

    def __init__(
        self,
        wants: Sequence[Sequence[int]],
        counts: Sequence[int],
        had: Sequence[dict[int, int]],
        low: Sequence[int],
        high: Sequence[int],
    ) -> None:
        self._wants, self._had, self._low, self._high = wants, had, low, high
        #: Member -> kind -> how many it has.
        self.has = [dict(each) for each in had]
        #: Kind -> members that have less of it than they had.
        self._lost: list[set[int]] = [set() for _ in wants]
        sizes = [sum(each.values()) for each in had]
        #: The part of a member's size that flows on to the shared node, within its bounds.
        self._within = [min(max(size, low[m]), high[m]) for m, size in enumerate(sizes)]
        # Nodes: members, kinds, the shared one. An excess above 0: too many partitions; below 0: too few.
        self._first, self._shared = len(had), len(had) + len(wants)
        pools = list(counts)
        for each in had:
            for kind, count in each.items():
                pools[kind] -= count
        over = [size - within for size, within in zip(sizes, self._within, strict=True)]
        self._excess = [*over, *pools, sum(self._within) - sum(counts)]
        self._potential = self._beginning()
        self._pour(low, within=True)
        self._pour(high, within=False)

    def solve(self) -> tuple[set[int], set[int]] | None:
        """Move until each member has its number.

        Returns:
            None: each has. Else the members that must have more, and the kinds to which only they subscribe.
        """
        while (far := self._look()) is not None:
            self._follow(far)
        if not any(self._excess):
            return None
        reached = [node for node, distance in enumerate(self._distance) if distance < _FAR]
        members = {node for node in reached if node < self._first}
        return members, {node - self._first for node in reached if self._first <= node < self._shared}

    # -- the beginning -------------------------------------------------------------------------------------------------

    def _beginning(self) -> list[int]:
        """The initial potentials: 0 for nodes that are reachable from an excess at no cost, else one move."""
        potential = [_MOVE] * (self._shared + 1)
        spill = self._excess[self._shared] > 0
        if spill:
            potential[self._shared] = 0
        for member, has in enumerate(self.has):
            if self._excess[member] > 0 or (spill and self._within[member] > self._low[member]):
                potential[member] = 0
                for kind in has:
                    potential[self._first + kind] = 0
        for kind in range(len(self._wants)):
            if self._excess[self._first + kind] > 0:
                potential[self._first + kind] = 0
        return potential

    def _pour(self, bound: Sequence[int], *, within: bool) -> None:
        """Give partitions without an owner to the members that lack most, up to a bound. This assigns nearly all of
        them without chains.

        Kinds with few subscribers come first: they have less choice.

        Args:
            bound: member -> the size up to which it is filled.
            within: whether the bound is the lower one.
        """
        shared = self._shared
        for kind in sorted(range(len(self._wants)), key=lambda kind: len(self._wants[kind])):
            node = self._first + kind
            amount = self._excess[node]
            if not within:
                amount = min(amount, -self._excess[shared])
            if amount <= 0:
                continue
            room = {m: bound[m] - self._size(m) for m in self._wants[kind]}
            for member, count in _level(amount, room):
                has = self.has[member]
                has[kind] = has.get(kind, 0) + count
                self._excess[node] -= count
                inside = min(count, -self._excess[member])
                self._excess[member] += inside
                self._within[member] += count - inside
                self._excess[shared] += count - inside

    def _size(self, member: int) -> int:
        return self._within[member] + self._excess[member]

    # -- the cheapest ways ---------------------------------------------------------------------------------------------

    def _ways(self, node: int) -> list[tuple[int, int]]:
        """The edges from a node: (target, cost)."""
        first, shared = self._first, self._shared
        if node < first:
            before = self._had[node]
            ways = [
                (first + kind, -_MOVE if count > before.get(kind, 0) else 0) for kind, count in self.has[node].items()
            ]
            if self._within[node] < self._high[node]:
                ways.append((shared, 0))
            return ways
        if node < shared:
            lost = self._lost[node - first]
            return [(member, 0 if member in lost else _MOVE) for member in self._wants[node - first]]
        return [(member, 0) for member in range(first) if self._within[member] > self._low[member]]

    def _look(self) -> int | None:
        """The distance from nodes with an excess to the nearest node with a deficit, in reduced costs; None: no path.

        Among paths of equal cost those with the fewest steps count. Therefore `_follow` never runs in a circle, and
        need not visit a dead end twice (Dinic).
        """
        excess, potential = self._excess, self._potential
        distance = self._distance = [_FAR] * len(excess)
        heap = [(0, node) for node, count in enumerate(excess) if count > 0]
        for _, node in heap:
            distance[node] = 0
        while heap:
            far, node = heapq.heappop(heap)
            if distance[node] < far:
                continue
            if excess[node] < 0:
                return far
            here = far + potential[node] + 1
            for target, cost in self._ways(node):
                length = here + cost - potential[target]
                if length < distance[target]:
                    distance[target] = length
                    heapq.heappush(heap, (length, target))
        return None

    def _follow(self, far: int) -> None:
        """Move along all paths of this length."""
        excess, potential = self._excess, self._potential
        self._steps = [min(distance, far + 1) & _STEPS for distance in self._distance]
        for node, distance in enumerate(self._distance):
            potential[node] += min(distance, far) & ~_STEPS
        self._dead: set[int] = set()
        #: Node -> its remaining targets at no reduced cost, the next one last.
        self._left: dict[int, list[int]] = {}
        for source in [node for node, count in enumerate(excess) if count > 0]:
            while excess[source] > 0:
                path = self._path(source)
                if not path:
                    break
                excess[source] -= 1
                excess[path[-1]] += 1
                for start, end in pairwise(path):
                    self._step(start, end)

    def _path(self, source: int) -> list[int]:
        """A path from a node to a deficit at no reduced cost; empty: there is none."""
        path = [source]
        while path:
            node = path[-1]
            if self._excess[node] < 0:
                break
            following = self._next(node)
            if following is None:
                self._dead.add(path.pop())
            else:
                path.append(following)
        return path

    def _next(self, node: int) -> int | None:
        potential, dead = self._potential, self._dead
        left = self._left.get(node)
        if left is None:
            here, steps, step = potential[node], self._steps, self._steps[node] + 1
            left = self._left[node] = [
                target
                for target, cost in self._ways(node)
                if here + cost == potential[target] and steps[target] == step
            ]
            left.reverse()
        while left:
            target = left[-1]
            if target not in dead and self._open(node, target):
                return target
            left.pop()
        return None

    def _open(self, node: int, target: int) -> bool:
        """Whether an edge that had no reduced cost when it was listed still has none."""
        first, shared = self._first, self._shared
        cost = self._potential[target] - self._potential[node]
        if node < first:
            if target == shared:
                return self._within[node] < self._high[node]
            kind = target - first
            count = self.has[node].get(kind, 0)
            return count > 0 and (cost < 0) is (count > self._had[node].get(kind, 0))
        if node < shared:
            return (cost > 0) is (target not in self._lost[node - first])
        return self._within[target] > self._low[target]

    def _step(self, start: int, end: int) -> None:
        """Move one partition along an edge."""
        first, shared = self._first, self._shared
        if end == shared:
            self._within[start] += 1
        elif start == shared:
            self._within[end] -= 1
        elif start < first:
            self._count(start, end - first, -1)
        else:
            self._count(end, start - first, 1)

    def _count(self, member: int, kind: int, more: int) -> None:
        has = self.has[member]
        count = has.get(kind, 0) + more
        if count:
            has[kind] = count
        else:
            del has[kind]
        if count < self._had[member].get(kind, 0):
            self._lost[kind].add(member)
        else:
            self._lost[kind].discard(member)


def _level(amount: int, room: dict[int, int]) -> list[tuple[int, int]]:
    """Give one by one to the member with most room, until all is given or no room is left. Returns (member, count)."""
    order = [(free, member) for member, free in sorted(room.items(), key=lambda each: -each[1]) if free > 0]
    taken, count = 0, 0  # by the first `count`, down to the room of the next
    while count < len(order):
        count += 1
        below = order[count][0] if count < len(order) else 0
        step = count * (order[count - 1][0] - below)
        if taken + step >= amount:
            break
        taken += step
    if not count:
        return []
    top = order[count - 1][0]
    # The room of the first `count` members falls to `top`; the rest goes around.
    each, more = divmod(min(amount - taken, count * top), count)
    given = [(member, free - top + each + (i < more)) for i, (free, member) in enumerate(order[:count])]
    return [(member, count) for member, count in given if count]
