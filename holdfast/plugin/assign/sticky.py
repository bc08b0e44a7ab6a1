"""Even over all topics of the group at once, and no move more than that takes ("sticky")."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING

from holdfast.plugin.assign.java import by_topic
from holdfast.plugin.assign.members import Subscriber
from holdfast.plugin.assign.sticky_dealing import Dealing, Near
from holdfast.plugin.assign.sticky_moves import Chains

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.plugin.assign.members import Weighed
    from holdfast.records import Partition


def sticky(
    members: Collection[Weighed],
    queues: Collection[Partition],
    previous: Mapping[Partition, str],
    *,
    racks: Mapping[Partition, Collection[str]] | None = None,
) -> dict[Partition, str]:
    """Give each queue to a member that wants its topic (a `GroupMember` wants all); what nobody wants is absent.

    - It is as even as can be. Where all want the same, each member gets its share of all, by weight, rounded up or
      down; with equal weights, the numbers of any two members differ by one at most. Where they want different topics,
      the sum of size * size / weight is the least there is. With equal weights the plan is then the most even one by
      any measure that gets better when a member with more gives one to a member with less by two or more: by the
      largest size, the smallest, the differences of all pairs (Kafka's own), because there is one that is best in all
      of them (Frank and Murota, Decreasing minimization on M-convex sets, 2022).
    - Of all plans like that, one with the fewest moves: queues that a member had who is still there, wants them, and
      gives them up.
    - Of those, where racks are known, one in which what moves goes to members in the rack of a replica (Kafka's own
      moves more for it: where all want the same, it takes from a member what has no replica beside it).
    - Of those, one in which topics are spread evenly: exactly so where all want the same, nobody had anything, and no
      racks are known; else as far as what moves anyway allows.

    The last two are decided step by step, without looking for the very best. The order of what it is given says
    nothing.

    Args:
        members: with ids that differ.
        queues: in any order.
        previous: who had what; see `last_owners` where members contradict each other.
        racks: of each partition's replicas. Members know theirs by `Subscriber.rack`.
    """
    ordered = sorted(members, key=lambda member: member.id)
    kinds = _kinds(ordered, by_topic(queues))
    near = _near(ordered, racks or {})
    if len(kinds) == 1:
        [(wanting, found)] = kinds.items()
        return _equal([ordered[i] for i in wanting], found, previous, near)
    return _differing(ordered, kinds, previous, near)


def _kinds(
    members: Sequence[Weighed], topics: Mapping[str, list[Partition]]
) -> dict[tuple[int, ...], dict[str, list[Partition]]]:
    """The numbers of members -> the topics that they want, and nobody else."""
    # Members that want the same are one, for most of the way: there are many of them, and few wishes.
    wishes: dict[Collection[str], list[int]] = defaultdict(list)
    everything = frozenset(topics)
    for i, member in enumerate(members):
        wishes[member.topics if isinstance(member, Subscriber) else everything].append(i)
    wished: dict[str, list[int]] = {topic: [] for topic in topics}
    for wish, wanted in enumerate(wishes):
        for topic in wanted:
            if topic in wished:
                wished[topic].append(wish)
    numbers = list(wishes.values())
    kinds: dict[tuple[int, ...], dict[str, list[Partition]]] = defaultdict(dict)
    for topic, by in wished.items():
        if by:
            kinds[tuple(by)][topic] = topics[topic]
    return {tuple(sorted(chain.from_iterable(numbers[wish] for wish in by))): found for by, found in kinds.items()}


def _near(members: Sequence[Weighed], racks: Mapping[Partition, Collection[str]]) -> Near | None:
    known = {member.id: member.rack for member in members if isinstance(member, Subscriber) and member.rack}
    return Near(known, racks) if known and racks else None


def _equal(
    members: Sequence[Weighed],
    topics: Mapping[str, list[Partition]],
    previous: Mapping[Partition, str],
    near: Near | None,
) -> dict[Partition, str]:
    """All of these topics are wanted by all of these members."""
    unit = math.gcd(*(member.weight for member in members))
    weights = {member.id: member.weight // unit for member in members}
    dealing = Dealing(weights, topics, previous, near)
    return dealing.deal(_shares(weights, dealing.sizes, sum(map(len, topics.values()))))


def _shares(weights: Mapping[str, int], sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """How many queues each member is to have."""
    weight = sum(weights.values())
    whole = {member_id: count * each // weight for member_id, each in weights.items()}
    rest = {member_id: count * each % weight for member_id, each in weights.items()}
    # One more for some whose share is not whole: for those first who would have to give a queue up otherwise.
    order = sorted(rest, key=lambda member_id: (sizes[member_id] <= whole[member_id], -rest[member_id], member_id))
    for member_id in [member_id for member_id in order if rest[member_id]][: count - sum(whole.values())]:
        whole[member_id] += 1
    return whole


def _differing(
    members: Sequence[Weighed],
    kinds: Mapping[tuple[int, ...], Mapping[str, list[Partition]]],
    previous: Mapping[Partition, str],
    near: Near | None,
) -> dict[Partition, str]:
    """How many of each kind of topic each member gets, then which."""
    numbers = {member.id: i for i, member in enumerate(members)}
    had: list[dict[int, int]] = [{} for _ in members]
    for kind, (wanting, topics) in enumerate(kinds.items()):
        wanted = set(wanting)
        for partitions in topics.values():
            for partition in partitions:
                owner = numbers.get(previous.get(partition, ""), -1)
                if owner in wanted:
                    had[owner][kind] = had[owner].get(kind, 0) + 1
    counts = [sum(map(len, topics.values())) for topics in kinds.values()]
    has = spread([member.weight for member in members], list(kinds), counts, had)
    owners: dict[Partition, str] = {}
    for kind, (wanting, topics) in enumerate(kinds.items()):
        concerned = [i for i in wanting if kind in has[i] or kind in had[i]]
        dealing = Dealing({members[i].id: members[i].weight for i in concerned}, topics, previous, near)
        owners.update(dealing.deal({members[i].id: has[i].get(kind, 0) for i in concerned}))
    return owners


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
