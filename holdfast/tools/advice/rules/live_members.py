"""Rules over a live group: who is in it, and whether that holds still. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from holdfast.tools.advice.rules.finding import Effect, Rule, Seen, Severity
from holdfast.tools.advice.rules.membership import EAGER
from holdfast.tools.advice.rules.watched import behind, ids_of, is_retry, member_name, some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.tools.advice.group_view import MemberView
    from holdfast.tools.advice.rules.watched import Watched

_GROUP = "group"


def _no_coordinator(watched: Watched) -> Iterator[Seen]:
    now = watched.now
    if watched.kafka and now.coordinator is None:
        of = "" if now.offsets_partition is None else f" (partition {now.offsets_partition} of __consumer_offsets)"
        yield Seen(
            _GROUP,
            f"no broker coordinates it{of}",
            "no member can join, send a heartbeat or commit; members continue with the partitions they have until "
            "their sessions end",
            "start the brokers that have that partition's replicas; look for offline partitions of __consumer_offsets",
        )


def _leaderless(watched: Watched) -> Iterator[Seen]:
    missing = [each.partition for each in watched.now.partitions.values() if each.exists and each.leader is None]
    if missing:
        yield Seen(
            some(sorted(missing)),
            "no leader" if watched.kafka else "its broker has no master",
            "they cannot be read or written, and their lag is unknown",
            "start the brokers that have them",
        )


def _loop(watched: Watched) -> Iterator[Seen]:
    moved, changes = watched.generations or 0, watched.changes
    if not changes:
        return
    always = set.intersection(*map(ids_of, watched.told))
    passing = {each.id: member_name(each) for view in watched.told for each in view.members if each.id not in always}
    times = "once" if changes == 1 else f"{changes} times"
    told = [f"the group changed {times} in {len(watched.views)} looks within {watched.apart_s:.0f} s"]
    if moved:
        told.append(f"generation {watched.first.generation} to {watched.now.generation}")
    if passing:
        told.append(f"joined or left: {some(sorted(set(passing.values())))}")
    if moved < 2 and changes < 2:
        yield Seen(
            _GROUP,
            "; ".join(told),
            "one rebalance between the looks: a deployment, or the first of several",
            "look again for longer (--looks)",
            Severity.NOTE,
        )
        return
    yield Seen(
        _GROUP,
        "; ".join(told),
        "one rebalance follows another: each stops the partitions that move (under an eager assignor all of them), "
        "and records in progress run again on another member",
        "find out why these members join and leave: a handler that takes longer than max.poll.interval.ms, a process "
        "that restarts again and again, a session timeout that is shorter than a pause, a static id that two "
        "processes share; `holdfast doctor FILE --handler TIME` checks the times",
    )


def _stuck(watched: Watched) -> Iterator[Seen]:
    views = watched.views
    if len(views) < 2 or watched.changes or not all(view.rebalancing for view in views):
        return
    # Members that have yet to give something up, under the consumer protocol; of classic ones no broker tells.
    late = [member_name(each) for each in watched.now.members if behind(each)]
    yield Seen(
        _GROUP,
        f"{watched.now.state} for at least {watched.apart_s:.0f} s" + (f"; waits for {some(late)}" if late else ""),
        "the rebalance waits for a member that neither polls nor leaves, for max.poll.interval.ms at most (5 min by "
        "default); meanwhile no member reads the partitions that move, under an eager assignor all of them",
        "find the member that hangs in its handler, and stop it; then poll while handlers run, as holdfast does, or "
        "set max.poll.interval.ms to a little more than a batch takes",
    )


def _eager(watched: Watched) -> Iterator[Seen]:
    now = watched.now
    if watched.kafka and now.protocol == "classic" and now.assignor in EAGER:
        yield Seen(
            _GROUP,
            f"assignor {now.assignor}",
            "it is eager: whenever a member joins or leaves, every member gives up all its partitions and waits for "
            "all others",
            "on brokers 4.0 and later change to group.protocol=consumer, one member at a time; on older brokers to "
            "cooperative-sticky: `holdfast migrate` shows the steps",
        )


def _protocols(watched: Watched) -> Iterator[Seen]:
    members = watched.now.members
    counts = Counter(each.protocol for each in members)
    if watched.kafka and len(counts) > 1:
        few = [member_name(each) for each in members if each.protocol == "classic"]
        yield Seen(
            _GROUP,
            ", ".join(f"{count} {protocol}" for protocol, count in sorted(counts.items())),
            "a migration is not finished: the classic members have to join again at each change, and an eager one "
            "gives up all its partitions",
            f"change the rest to group.protocol=consumer: {some(sorted(few))}",
        )


def _assignors(watched: Watched) -> Iterator[Seen]:
    lists = {each.assignors: member_name(each) for each in watched.now.members if each.assignors}
    if len(lists) > 1:
        yield Seen(
            _GROUP,
            "; ".join(f"{', '.join(names)} ({member})" for names, member in sorted(lists.items())),
            "the group uses an assignor that all members list, so a member that joins or leaves may change the whole "
            "assignment; the broker refuses a member that has no assignor in common with the others",
            "give all members the same list",
        )


def _foreign(watched: Watched) -> Iterator[Seen]:
    members = watched.now.members
    ours = [each for each in members if each.protocol == "holdfast"]
    others = [member_name(each) for each in members if each.protocol == "remoting"]
    if ours and others:
        yield Seen(
            some(sorted(others)),
            f"together with {len(ours)} members that holdfast coordinates",
            "they do not follow holdfast's plan: brokers let them read and commit queues that the plan gives to "
            "others, so records run twice or are lost",
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
            "this may be intended; a member that subscribes to fewer topics has less to do, and no assignor can "
            "balance that",
            "give all members the same subscription, or give each kind of member its own group",
            Severity.NOTE,
            Effect.UNEVEN,
        )
        return
    yield Seen(
        _GROUP,
        found,
        "a broker keeps one subscription for a group, that of the last heartbeat: no member reads a queue whose owner "
        "does not subscribe to its topic, and messages that the tags leave out are skipped for good",
        "give all members the same topics and tags; to change the subscription, use another group, or stop all "
        "members first",
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
            "a restart of these members rebalances the group, a restart of the others does not; they may come from an "
            "old deployment, or from a configuration that was forgotten",
            "give each of them one, or remove it from all members",
            Severity.WARNING,
        )
        return
    yield Seen(
        _GROUP,
        f"none of {len(members)} members has a group.instance.id",
        "each restart is a leave and a join, so a deployment rebalances the group twice for each member",
        "give each process its own id that stays the same after a restart",
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
            f"taken over {len(members) - 1} time{'s' if again else ''} within {watched.apart_s:.0f} s; first held by "
            f"{members[0].client_id} at {members[0].host}",
            "a process that joins with a static id in use removes the member that has it: two processes with one id "
            "remove each other again and again, and their records in progress run twice"
            + ("" if again else "; a single takeover may be a restart"),
            "give each process its own id, and make sure that the old process has ended before a new one uses its id",
            Severity.ERROR if again else None,
        )


def _client_doubled(watched: Watched) -> Iterator[Seen]:
    doubled = [each for each in watched.now.members if each.connections > 1]
    for each in doubled:
        yield Seen(
            member_name(each),
            f"{each.connections} connections of one client id",
            "these processes count as one member: all of them get and read the same queues, and no process reads the "
            "queues that the others should have",
            "give each process its own instance name: leave instanceName out, and the client chooses one",
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
        title="the group changed again and again between the looks",
        look=_loop,
        also=((Severity.NOTE, "a single rebalance"),),
    ),
    Rule(
        name="rebalance-stuck",
        severity=Severity.ERROR,
        effect=Effect.STANDSTILL,
        title="a rebalance that did not end during the looks",
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
        title="RocketMQ: several processes with one client id, for example from a fixed `instanceName`",
        look=_client_doubled,
    ),
    Rule(
        name="subscriptions-differ",
        severity=Severity.ERROR,
        effect=Effect.SKIPS,
        title="members with different subscriptions",
        look=_subscriptions,
        also=((Severity.NOTE, "on Kafka"),),
    ),
    Rule(
        name="static-ids-doubled",
        severity=Severity.WARNING,
        effect=Effect.REPEATS,
        title="a static id that another process took over between the looks",
        look=_static_doubled,
        also=((Severity.ERROR, "more than once"),),
    ),
    Rule(
        name="protocols-differ",
        severity=Severity.WARNING,
        effect=Effect.STANDSTILL,
        title="members of both protocols, classic and consumer",
        look=_protocols,
    ),
    Rule(
        name="assignors-differ",
        severity=Severity.WARNING,
        effect=Effect.STANDSTILL,
        title="members with different lists of assignors, if the lists are known",
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
        title="members without a static id",
        look=_static_missing,
        also=((Severity.WARNING, "if other members have one"),),
    ),
)
