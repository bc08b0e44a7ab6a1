"""Rules over a live group: who has what. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from holdfast.plugin.advice.rules.finding import Effect, Rule, Seen, Severity
from holdfast.plugin.advice.rules.watched import behind, is_retry, member_name, shares, some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.plugin.advice.group_view import GroupView, MemberView
    from holdfast.plugin.advice.rules.watched import Watched
    from holdfast.records import Partition

_GROUP = "group"


def _unread(watched: Watched) -> Iterator[Seen]:
    nobody = sorted(_nobodys(watched.first) & _nobodys(watched.now))
    if nobody and not any(view.rebalancing for view in watched.views):
        yield Seen(
            some(nobody),
            f"{len(nobody)} partitions that members subscribe to are nobody's",
            "what is in them is not read, and their lag grows",
            "partitions that were added are seen when the clients ask anew (5 min by default); otherwise restart the "
            "member that leads the group, or look for two clients of one name (RocketMQ)",
        )


def _nobodys(view: GroupView) -> set[Partition]:
    """Partitions of the members' topics that none of them has; nothing where not all tell."""
    has = shares(view)
    if not has or len(has) < len(view.members):
        return set()
    read = {topic for each in view.members for topic in each.topics or () if not is_retry(topic)}
    there = {each for each, shown in view.partitions.items() if shown.exists and each.topic in read}
    return there.difference(*has.values())


def _twice(watched: Watched) -> Iterator[Seen]:
    twice = sorted(_doubled(watched.first) & _doubled(watched.now))
    if twice and watched.calm:
        yield Seen(
            some(twice),
            f"{len(twice)} partitions are read by two members",
            "each of their records runs twice, and the slower one's commits move the group back",
            "on RocketMQ members that see different lists do so for 20 s at most: if it stays, look for clients of "
            "one name, and for a broker that some members cannot reach",
        )


def _doubled(view: GroupView) -> set[Partition]:
    counts = Counter(partition for partitions in shares(view).values() for partition in partitions)
    return {partition for partition, count in counts.items() if count > 1}


def _behind_plan(watched: Watched) -> Iterator[Seen]:
    if len(watched.views) < 2 or watched.apart_s < watched.commit_interval_s:
        return
    for member in watched.now.members:
        before = next((each for each in watched.first.members if each.id == member.id), None)
        if before is not None and behind(before) and behind(member) and before.target == member.target:
            kept = (member.partitions or frozenset()) - (member.target or frozenset())
            lacks = (member.target or frozenset()) - (member.partitions or frozenset())
            yield Seen(
                member_name(member),
                f"has yet to give up {some(sorted(kept))}" if kept else f"waits for {some(sorted(lacks))}",
                "what moves is read by nobody until the member that has it lets go, or its rebalance timeout ends it",
                "a member that gives nothing up hangs in its handler: poll while handlers run, or bring "
                "max.poll.interval.ms near to what a batch takes",
            )


def _idle(watched: Watched) -> Iterator[Seen]:
    if not watched.calm or len(watched.has) < len(watched.now.members):
        return
    idle = [member_name(each) for each in watched.now.members if not watched.has[each.id]]
    total = sum(map(len, watched.has.values()))
    if idle and total < len(watched.has):
        yield Seen(
            some(sorted(idle)),
            f"{len(idle)} of {len(watched.has)} members have nothing: there are {total} partitions to have",
            "they take no load off the others, and each of them that comes or goes makes a rebalance all the same",
            "run no more members than partitions, add partitions, or give each member more workers",
        )


def _uneven(watched: Watched) -> Iterator[Seen]:
    if not watched.calm:
        return
    alike: defaultdict[frozenset[str], list[MemberView]] = defaultdict(list)
    for each in watched.now.members:
        if each.id in watched.has:
            alike[frozenset(topic for topic in each.topics or () if not is_retry(topic))].append(each)
    for members in alike.values():
        counts = {each.id: len(watched.has[each.id]) for each in members}
        weight, total = sum(each.weight for each in members), sum(counts.values())
        # With equal weights that is: two members are apart by more than one.
        if all(abs(counts[each.id] - total * each.weight / weight) < 1 for each in members):
            continue
        least, *_, most = sorted(members, key=lambda each: counts[each.id] / each.weight)
        yield Seen(
            _GROUP,
            f"{member_name(most)} has {counts[most.id]} partitions, {member_name(least)} {counts[least.id]}",
            "the first is behind when the others have nothing to do, and the group is as slow as its slowest member",
            "use an assignor that is even over all topics: uniform or cooperative-sticky on Kafka, holdfast's "
            "RocketMQSource on RocketMQ; `holdfast plan` shows what it would move",
        )


def _dead(watched: Watched) -> Iterator[Seen]:
    dead = [member_name(each) for each in watched.now.members if each.lease_left_s == 0]
    if dead:
        yield Seen(
            some(sorted(dead)),
            "its lease has ended, and nobody has removed it yet",
            "its queues are read by nobody until another member's next beat",
            "nothing, if it goes away by itself; if not, no member of the group is alive",
        )


RULES = (
    Rule(
        name="read-by-nobody",
        severity=Severity.ERROR,
        effect=Effect.STANDSTILL,
        title="a partition that members subscribe to and none has",
        look=_unread,
    ),
    Rule(
        name="read-twice",
        severity=Severity.ERROR,
        effect=Effect.REPEATS,
        title="a partition that two members have",
        look=_twice,
    ),
    Rule(
        name="member-behind",
        severity=Severity.WARNING,
        effect=Effect.STANDSTILL,
        title="a member that does not give up, or does not get, what it is to",
        look=_behind_plan,
    ),
    Rule(
        name="members-idle",
        severity=Severity.WARNING,
        effect=Effect.UNEVEN,
        title="more members than partitions",
        look=_idle,
    ),
    Rule(
        name="spread-uneven",
        severity=Severity.WARNING,
        effect=Effect.UNEVEN,
        title="members that subscribe alike, and are apart by two partitions or more (weights counted)",
        look=_uneven,
    ),
    Rule(
        name="member-dead",
        severity=Severity.NOTE,
        effect=Effect.STANDSTILL,
        title="a coordinated member whose lease has ended",
        look=_dead,
    ),
)
