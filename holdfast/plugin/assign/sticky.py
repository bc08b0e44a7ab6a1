"""The strategy "sticky": even over all topics of the group together, with the fewest moves."""

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
    """Assign each queue to a member that subscribes to its topic (a `GroupMember` subscribes to all). Queues of topics
    without a subscriber are left out. The plan meets these goals, in this order:

    - The plan is as even as possible. If all members subscribe to the same topics, each gets its share of all queues,
      by weight, rounded up or down; with equal weights, the numbers of two members differ by one at most. If they
      subscribe to different topics, the sum of size * size / weight is minimal. With equal weights the plan is then the
      most even one by any measure that improves when a member gives a queue to one that has at least two fewer: the
      largest size, the smallest, the differences of all pairs (Kafka's own measure). One plan is best in all of them
      (Frank and Murota, Decreasing minimization on M-convex sets, 2022).
    - It has the fewest moves. A move is a queue that is taken from a member that is still there and subscribes to it.
    - If racks are known, moved queues go to members in the rack of a replica. (Kafka's own assignor makes more moves
      for that: if all subscribe to the same topics, it takes queues without a replica in its rack from a member.)
    - Topics are spread evenly: exactly if all subscribe to the same topics, there are no former owners, and no racks
      are known; else as far as the moves allow.

    The last two goals are met step by step, without a search for the optimum. The order of the arguments has no
    influence.

    Args:
        members: members with distinct ids.
        queues: in any order.
        previous: queue -> former owner; see `last_owners` if members contradict each other.
        racks: partition -> the racks of its replicas. A member's rack is `Subscriber.rack`.
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
    """Indexes of members -> the topics to which exactly these members subscribe."""
    # Group members by subscription first: there are many members, and few subscriptions.
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
    """Plan for members that all subscribe to all of these topics."""
    unit = math.gcd(*(member.weight for member in members))
    weights = {member.id: member.weight // unit for member in members}
    dealing = Dealing(weights, topics, previous, near)
    return dealing.deal(_shares(weights, dealing.sizes, sum(map(len, topics.values()))))


def _shares(weights: Mapping[str, int], sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """The number of queues for each member."""
    weight = sum(weights.values())
    whole = {member_id: count * each // weight for member_id, each in weights.items()}
    rest = {member_id: count * each % weight for member_id, each in weights.items()}
    # Round up some shares that are not whole: first those of members that would otherwise have to give up a queue.
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
    """Plan for members with different subscriptions: first how many of each kind of topic each gets, then which."""
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
    """Member -> kind -> number of partitions.

    The sum of size * size / weight is minimal, and of all such numbers these move the fewest partitions.

    Ideally all members are at the same level. If that is impossible, some members must have more, because they alone
    subscribe to some kinds. These members share those kinds, the others share the rest, and each part is solved in the
    same way (Groenevelt 1991, Two algorithms for maximizing a separable concave function over a polymatroid feasible
    region). The solutions of the parts together are optimal.

    Args:
        weights: the weight of each member.
        wants: kind -> the members that subscribe to it, at least one.
        counts: kind -> its partitions, at least one.
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
    """The least and the most partitions of each member at the level at which all would be even.

    The next partition goes to the member with the lowest cost, (2 * size + 1) / weight. Several members may have the
    same cost at the last level, and only some of them get one more.
    """
    whole = sum(weights)
    # A lower bound for each; about one partition for every second member is missing then.
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
