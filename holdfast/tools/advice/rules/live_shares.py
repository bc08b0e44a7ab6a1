"""Rules over a live group: who has what. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from holdfast.tools.advice.rules.finding import Effect, Rule, Seen, Severity
from holdfast.tools.advice.rules.watched import behind, is_retry, member_name, shares, some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.records import Partition
    from holdfast.tools.advice.group_view import GroupView, MemberView
    from holdfast.tools.advice.rules.watched import Watched

_GROUP = "group"


def _unread(watched: Watched) -> Iterator[Seen]:
    nobody = sorted(_nobodys(watched.first) & _nobodys(watched.now))
    if nobody and not any(view.rebalancing for view in watched.views):
        yield Seen(
            some(nobody),
            f"{len(nobody)} partitions of subscribed topics have no owner",
            "no member reads them, and their lag grows",
            "if they were just added, wait until the clients refresh their metadata (5 min by default); otherwise "
            "restart the member that leads the group, or look for two clients with one id (RocketMQ)",
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
            f"{len(twice)} partitions have two owners",
            "each of their records runs twice, and the slower member's commits move the group's offset back",
            "on RocketMQ members may see different lists of members for up to 20 s; if it lasts longer, look for "
            "clients with one id, and for a broker that some members cannot reach",
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
                f"has not given up {some(sorted(kept))} yet" if kept else f"waits for {some(sorted(lacks))}",
                "no member reads a partition that moves until its owner gives it up, or the owner's rebalance timeout "
                "ends",
                "a member that gives up nothing hangs in its handler: poll while handlers run, or set "
                "max.poll.interval.ms to a little more than a batch takes",
            )


def _idle(watched: Watched) -> Iterator[Seen]:
    if not watched.calm or len(watched.has) < len(watched.now.members):
        return
    idle = [member_name(each) for each in watched.now.members if not watched.has[each.id]]
    total = sum(map(len, watched.has.values()))
    if idle and total < len(watched.has):
        yield Seen(
            some(sorted(idle)),
            f"{len(idle)} of {len(watched.has)} members without a partition: there are only {total} partitions",
            "they take no work from the others, and each of them still causes a rebalance when it joins or leaves",
            "run at most as many members as partitions, add partitions, or give each member more workers",
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
            "the first still has a backlog when the others have none, and the group is as slow as its slowest member",
            "use an assignor that balances over all topics: uniform or cooperative-sticky on Kafka, holdfast's "
            "RocketMQSource on RocketMQ; `holdfast plan` shows what it would move",
        )


def _dead(watched: Watched) -> Iterator[Seen]:
    dead = [member_name(each) for each in watched.now.members if each.lease_left_s == 0]
    if dead:
        yield Seen(
            some(sorted(dead)),
            "its lease has expired, and no member has removed it yet",
            "no member reads its queues until another member's next heartbeat",
            "nothing, if it disappears soon; if it stays, no member of the group is alive",
        )


RULES = (
    Rule(
        name="read-by-nobody",
        severity=Severity.ERROR,
        effect=Effect.STANDSTILL,
        title="a partition of a subscribed topic that no member owns",
        look=_unread,
    ),
    Rule(
        name="read-twice",
        severity=Severity.ERROR,
        effect=Effect.REPEATS,
        title="a partition that two members own",
        look=_twice,
    ),
    Rule(
        name="member-behind",
        severity=Severity.WARNING,
        effect=Effect.STANDSTILL,
        title="a member that does not give up or does not get a partition as assigned",
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
        title="members with the same subscription whose numbers of partitions differ by two or more (weights "
        "considered)",
        look=_uneven,
    ),
    Rule(
        name="member-dead",
        severity=Severity.NOTE,
        effect=Effect.STANDSTILL,
        title="a coordinated member whose lease has expired",
        look=_dead,
    ),
)
