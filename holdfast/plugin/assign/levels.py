"""How many of each kind of topic a member gets, where members want different topics: as even as can be."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from holdfast.plugin.assign.chains import Chains

if TYPE_CHECKING:
    from collections.abc import Sequence


def spread(
    weights: Sequence[int], wants: Sequence[Sequence[int]], counts: Sequence[int], had: Sequence[dict[int, int]]
) -> list[dict[int, int]]:
    """Member -> kind -> how many.

    The sizes are such that the sum of size * size / weight is the least there is, and of all numbers like that these
    move the fewest partitions.

    All members would be even at a certain level. Where that cannot be, some can only have more: nobody else wants what
    they want. They share that among themselves, the others share the rest, and each part is looked at for itself in
    the same way (Groenevelt 1991, Two algorithms for maximizing a separable concave function over a polymatroid
    feasible region). What no part can do better, no plan can.

    Args:
        weights: of each member.
        wants: kind -> the members that want it, some at least.
        counts: kind -> its partitions, one at least.
        had: member -> kind -> how many it had.
    """
    result: list[dict[int, int]] = [{} for _ in weights]
    parts = [(list(range(len(weights))), list(range(len(wants))))]
    while parts:
        members, kinds = parts.pop()
        if not kinds:
            continue
        number_of = {member: i for i, member in enumerate(members)}
        kind_of = {kind: i for i, kind in enumerate(kinds)}
        low, high = _bounds([weights[member] for member in members], sum(counts[kind] for kind in kinds))
        chains = Chains(
            [[number_of[member] for member in wants[kind] if member in number_of] for kind in kinds],
            [counts[kind] for kind in kinds],
            [{kind_of[kind]: n for kind, n in had[member].items() if kind in kind_of} for member in members],
            low,
            high,
        )
        rich = chains.solve()
        if rich is None:
            for member, has in zip(members, chains.has, strict=True):
                result[member] = {kinds[kind]: count for kind, count in has.items()}
            continue
        parts += [
            (
                [member for i, member in enumerate(members) if (i in rich[0]) is inside],
                [kind for i, kind in enumerate(kinds) if (i in rich[1]) is inside],
            )
            for inside in (True, False)
        ]
    return result


def _bounds(weights: Sequence[int], count: int) -> tuple[list[int], list[int]]:
    """At the level at which all would be even: how many each has at least, and at most.

    The next partition goes to whom it costs least, (2 * size + 1) / weight; the last of so many are at one level, and
    not all who could have one of that level get it.
    """
    whole = sum(weights)
    # So much each has for certain; what is missing of all is about one for each second member.
    below = max(0, 2 * count - len(weights) - 2)
    sizes = [(below * weight + whole) // (2 * whole) for weight in weights]
    heap = [((2 * size + 1) / weight, i) for i, (size, weight) in enumerate(zip(sizes, weights, strict=True))]
    heapq.heapify(heap)
    level = 0.0
    for _ in range(count - sum(sizes)):
        level, i = heap[0]
        sizes[i] += 1
        heapq.heapreplace(heap, ((2 * sizes[i] + 1) / weights[i], i))
    low = [size - ((2 * size - 1) / weight >= level) for size, weight in zip(sizes, weights, strict=True)]
    high = [size + ((2 * size + 1) / weight <= level) for size, weight in zip(sizes, weights, strict=True)]
    return (sizes, sizes) if low == high or sum(high) == count else (low, high)
