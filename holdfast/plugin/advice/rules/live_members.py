"""Rules over a live group: who is in it, and whether that holds still. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from holdfast.plugin.advice.rules.finding import Effect, Rule, Seen, Severity
from holdfast.plugin.advice.rules.membership import EAGER
from holdfast.plugin.advice.rules.watched import behind, is_retry, member_name, some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.plugin.advice.group_view import MemberView
    from holdfast.plugin.advice.rules.watched import Watched

_GROUP = "group"


def _no_coordinator(watched: Watched) -> Iterator[Seen]:
    now = watched.now
    if watched.kafka and now.coordinator is None:
        of = "" if now.offsets_partition is None else f" (partition {now.offsets_partition} of __consumer_offsets)"
        yield Seen(
            _GROUP,
            f"no broker coordinates it{of}",
            "nobody can join, heartbeat or commit: members go on with what they have until their sessions end",
            "bring back the brokers that have that partition's replicas; look for offline partitions of "
            "__consumer_offsets",
        )


def _leaderless(watched: Watched) -> Iterator[Seen]:
    missing = [each.partition for each in watched.now.partitions.values() if each.exists and each.leader is None]
    if missing:
        yield Seen(
            some(sorted(missing)),
            "no leader" if watched.kafka else "its broker has no master",
            "nothing of them can be read or written, and their lag is not known",
            "bring back the brokers that have them",
        )


def _loop(watched: Watched) -> Iterator[Seen]:
    moved, changes = watched.generations or 0, watched.changes
    if not changes:
        return
    ids = [{each.id for each in view.members} for view in watched.views]
    always = set.intersection(*ids)
    passing = {each.id: member_name(each) for view in watched.views for each in view.members if each.id not in always}
    told = [f"another group in {changes} of {len(watched.views) - 1} looks within {watched.apart_s:.0f} s"]
    if moved:
        told.append(f"generation {watched.first.generation} to {watched.now.generation}")
    if passing:
        told.append(f"came or went: {some(sorted(set(passing.values())))}")
    if moved < 2 and changes < 2:
        yield Seen(
            _GROUP,
            "; ".join(told),
            "one rebalance while it was looked at: a deployment, or the beginning of something",
            "look again, for longer (--looks)",
            Severity.NOTE,
        )
        return
    yield Seen(
        _GROUP,
        "; ".join(told),
        "rebalances follow each other: each stops what moves (all of it, under an eager assignor), and what was in "
        "hand runs again elsewhere",
        "find why these members come and go: handlers longer than max.poll.interval.ms, a process that is restarted "
        "again and again, a session too short for its pauses, a static id that two share; "
        "`holdfast doctor FILE --handler TIME` judges the times",
    )


def _stuck(watched: Watched) -> Iterator[Seen]:
    views = watched.views
    if len(views) < 2 or watched.changes or not all(view.rebalancing for view in views):
        return
    # Members that have yet to give something up, under the consumer protocol; of classic ones no broker tells.
    late = [member_name(each) for each in watched.now.members if behind(each)]
    yield Seen(
        _GROUP,
        f"{watched.now.state} for {watched.apart_s:.0f} s and longer" + (f"; waits for {some(late)}" if late else ""),
        "a rebalance waits for a member that neither polls nor leaves, for max.poll.interval.ms at most (5 min by "
        "default): meanwhile what moves is read by nobody, and under an eager assignor that is everything",
        "find the member that hangs in its handler, and end it; then poll while handlers run, as holdfast does, or "
        "bring max.poll.interval.ms near to what a batch takes",
    )


def _eager(watched: Watched) -> Iterator[Seen]:
    now = watched.now
    if watched.kafka and now.protocol == "classic" and now.assignor in EAGER:
        yield Seen(
            _GROUP,
            f"assignor {now.assignor}",
            "it is eager: at each join and leave every member gives up all its partitions and waits for all others",
            "on brokers 4.0 and later change to group.protocol=consumer, member by member; before that to "
            "cooperative-sticky: `holdfast migrate` tells the order",
        )


def _protocols(watched: Watched) -> Iterator[Seen]:
    members = watched.now.members
    counts = Counter(each.protocol for each in members)
    if watched.kafka and len(counts) > 1:
        few = [member_name(each) for each in members if each.protocol == "classic"]
        yield Seen(
            _GROUP,
            ", ".join(f"{count} {protocol}" for protocol, count in sorted(counts.items())),
            "a migration that is not over: the classic members have to join anew at each change, and an eager one of "
            "them gives up all it has",
            f"bring the rest to group.protocol=consumer: {some(sorted(few))}",
        )


def _assignors(watched: Watched) -> Iterator[Seen]:
    lists = {each.assignors: member_name(each) for each in watched.now.members if each.assignors}
    if len(lists) > 1:
        yield Seen(
            _GROUP,
            "; ".join(f"{', '.join(names)} ({member})" for names, member in sorted(lists.items())),
            "what all have in common decides, so who joins or leaves may change how everything is shared out; a "
            "member that has nothing in common with the others is refused",
            "give all members one list",
        )


def _foreign(watched: Watched) -> Iterator[Seen]:
    members = watched.now.members
    ours = [each for each in members if each.protocol == "holdfast"]
    others = [member_name(each) for each in members if each.protocol == "remoting"]
    if ours and others:
        yield Seen(
            some(sorted(others)),
            f"beside {len(ours)} members that holdfast coordinates",
            "they do not go by the plan: brokers let them read and commit what is given to others, so records run "
            "twice or are lost",
            "stop them, or give them another group",
        )


def _subscriptions(watched: Watched) -> Iterator[Seen]:
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for each in watched.now.members:
        if watched.kafka:
            said = None if each.topics is None else ", ".join(sorted(each.topics))
        else:
            # Members of a plan in the store subscribe alike, or are refused.
            said = None if each.expressions is None else _expressions(each)
        if said is not None:
            kinds[said].append(member_name(each))
    if len(kinds) < 2:
        return
    found = "; ".join(f"{said or 'nothing'}: {some(sorted(names), 2)}" for said, names in sorted(kinds.items()))
    if watched.kafka:
        yield Seen(
            _GROUP,
            found,
            "that may be meant; who subscribes to less has less to do, and no assignor can make it even",
            "let all subscribe alike, or give each kind a group of its own",
            Severity.NOTE,
            Effect.UNEVEN,
        )
        return
    yield Seen(
        _GROUP,
        found,
        "a broker keeps one subscription for a group, that of the last heartbeat: of queues that a member was given "
        "and does not subscribe to nobody reads, and messages that its tags leave out are skipped for good",
        "let all members subscribe alike, topic by topic and tag by tag; a changed subscription takes another group, "
        "or a stop of all",
    )


def _expressions(member: MemberView) -> str:
    return ", ".join(
        topic if tags == "*" else f"{topic} [{tags}]"
        for topic, tags in sorted((member.expressions or {}).items())
        if not is_retry(topic)
    )


def _static_missing(watched: Watched) -> Iterator[Seen]:
    members = watched.now.members
    without = [member_name(each) for each in members if each.instance_id is None]
    if not watched.kafka or not without:
        return
    if len(without) < len(members):
        yield Seen(
            some(sorted(without)),
            f"no group.instance.id: {len(without)} of {len(members)} members",
            "restarts of these rebalance the group, those of the others do not: perhaps an old deployment, or one "
            "configuration that was forgotten",
            "give them one each, or take it from all",
            Severity.WARNING,
        )
        return
    yield Seen(
        _GROUP,
        f"no member of {len(members)} has a group.instance.id",
        "each restart is a leave and a join, so a deployment rebalances the group twice for each member",
        "give each process a name that it keeps over a restart and nobody else has",
    )


def _static_doubled(watched: Watched) -> Iterator[Seen]:
    seen: defaultdict[str, list[MemberView]] = defaultdict(list)
    for view in watched.views:
        for each in view.members:
            if each.instance_id is not None and (
                not seen[each.instance_id] or seen[each.instance_id][-1].id != each.id
            ):
                seen[each.instance_id].append(each)
    for instance_id, members in sorted(seen.items()):
        if len(members) < 2:
            continue
        again = len(members) > 2
        yield Seen(
            instance_id,
            # The broker goes on showing the client id and the host of the first that had it (Kafka 4.3.1).
            f"taken over {len(members) - 1} time{'s' if again else ''} within {watched.apart_s:.0f} s; first had by "
            f"{members[0].client_id} at {members[0].host}",
            "who joins under a name that is in use throws its owner out: two processes of one name throw each other "
            "out again and again, and what each had in hand runs twice"
            + ("" if again else "; once may have been a restart"),
            "give each process a name of its own, and see that the old one is gone before a name is used again",
            Severity.ERROR if again else None,
        )


def _client_doubled(watched: Watched) -> Iterator[Seen]:
    doubled = [each for each in watched.now.members if each.connections > 1]
    for each in doubled:
        yield Seen(
            member_name(each),
            f"{each.connections} connections of one client id",
            "so many processes are one member to the others: all of them are given the same queues, which each of them "
            "reads, and the queues of the others nobody",
            "give each process an instance name of its own: leave instanceName out, and the client finds one",
        )


RULES = (
    Rule(
        name="no-coordinator",
        severity=Severity.ERROR,
        effect=Effect.STANDSTILL,
        title="a Kafka group without a coordinator",
        look=_no_coordinator,
    ),
    Rule(
        name="no-leader",
        severity=Severity.ERROR,
        effect=Effect.STANDSTILL,
        title="partitions without a leader",
        look=_leaderless,
    ),
    Rule(
        name="rebalance-loop",
        severity=Severity.ERROR,
        effect=Effect.STORM,
        title="the group has become another one again and again while it was looked at",
        look=_loop,
        also=((Severity.NOTE, "one rebalance alone"),),
    ),
    Rule(
        name="rebalance-stuck",
        severity=Severity.ERROR,
        effect=Effect.STANDSTILL,
        title="a rebalance that did not end while it was looked at",
        look=_stuck,
    ),
    Rule(
        name="foreign-members",
        severity=Severity.ERROR,
        effect=Effect.REPEATS,
        title="RocketMQ: members of other clients in a group that holdfast coordinates",
        look=_foreign,
    ),
    Rule(
        name="client-id-doubled",
        severity=Severity.ERROR,
        effect=Effect.REPEATS,
        title="RocketMQ: processes of one client id, as a fixed `instanceName` makes them",
        look=_client_doubled,
    ),
    Rule(
        name="subscriptions-differ",
        severity=Severity.ERROR,
        effect=Effect.SKIPS,
        title="members that subscribe to different things; on Kafka a note",
        look=_subscriptions,
        also=((Severity.NOTE, "on Kafka"),),
    ),
    Rule(
        name="static-ids-doubled",
        severity=Severity.WARNING,
        effect=Effect.REPEATS,
        title="a static id that has changed hands while it was looked at",
        look=_static_doubled,
        also=((Severity.ERROR, "more than once"),),
    ),
    Rule(
        name="protocols-differ",
        severity=Severity.WARNING,
        effect=Effect.STANDSTILL,
        title="members of the classic and of the consumer protocol",
        look=_protocols,
    ),
    Rule(
        name="assignors-differ",
        severity=Severity.WARNING,
        effect=Effect.STANDSTILL,
        title="members with different lists of assignors, where they are known",
        look=_assignors,
    ),
    Rule(
        name="group-eager",
        severity=Severity.WARNING,
        effect=Effect.STANDSTILL,
        title="a group whose assignor is eager",
        look=_eager,
    ),
    Rule(
        name="static-ids-missing",
        severity=Severity.NOTE,
        effect=Effect.STORM,
        title="members without a static id; a warning where only some have one",
        look=_static_missing,
        also=((Severity.WARNING, "where only some have none"),),
    ),
)
