"""Rules over live groups: each finds its trouble in looks, and is silent where there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from holdfast.errors import SettingError
from holdfast.plugin.retrying.keeping import Keeping
from holdfast.records import Partition
from holdfast.tools.advice.doctor import GROUP_RULES, JOINING_RULES, Severity, Watched, examine_group, examine_joining
from holdfast.tools.advice.group_view import GroupView, MemberView, Node, PartitionView
from holdfast.tools.advice.rules.conf import Client, ClientConf

_NODE = Node("1", "broker:9092")
P = [Partition("orders", number) for number in range(4)]
Q = [Partition("orders", number, "broker-a") for number in range(4)]


def member(number: int, *partitions: Partition, **other: Any) -> MemberView:
    return MemberView(
        **{
            "id": f"m{number}",
            "client_id": f"app-{number}",
            "host": f"10.0.0.{number}",
            "instance_id": f"static-{number}",
            "protocol": "consumer",
            "topics": frozenset({"orders"}),
            "partitions": frozenset(partitions),
            "target": frozenset(partitions),
            **other,
        }
    )


def at(partition: Partition, committed: int | None = 100, **other: Any) -> PartitionView:
    return PartitionView(
        **{"partition": partition, "committed": committed, "first": 0, "end": 100, "leader": _NODE, **other}
    )


def kafka(*members: MemberView, partitions: list[PartitionView] | None = None, **other: Any) -> GroupView:
    """A healthy group of two, but for what is said."""
    return GroupView(
        **{
            "kind": "kafka",
            "group": "billing",
            "state": "stable",
            "protocol": "consumer",
            "assignor": "uniform",
            "generation": 7,
            "coordinator": _NODE,
            "offsets_partition": 3,
            "offsets_leader": _NODE,
            "members": members or (member(1, P[0], P[1]), member(2, P[2], P[3])),
            "partitions": {each.partition: each for each in partitions or [at(one) for one in P]},
            **other,
        }
    )


def client(number: int, *queues: Partition, **other: Any) -> MemberView:
    """A RocketMQ client."""
    told = {"instance_id": None, "protocol": "remoting", "target": None, "expressions": {"orders": "*"}}
    return member(number, *queues, **{**told, **other})


def planned(number: int, *queues: Partition, **other: Any) -> MemberView:
    """One that holdfast coordinates."""
    told = {"instance_id": None, "protocol": "holdfast", "target": None, "lease_left_s": 8.0}
    return member(number, *queues, **{**told, **other})


def rocketmq(*members: MemberView, partitions: list[PartitionView] | None = None, **other: Any) -> GroupView:
    return GroupView(
        **{
            "kind": "rocketmq",
            "group": "billing",
            "state": "stable" if members else "empty",
            "protocol": "remoting",
            "members": members,
            "partitions": {each.partition: each for each in partitions or [at(one) for one in Q]},
            **other,
        }
    )


def looks(*views: GroupView, every_s: float = 10.0) -> Watched:
    return Watched(views=views, at_s=tuple(number * every_s for number in range(len(views))))


HEALTHY = {
    "kafka": looks(kafka()),
    "kafka, watched": looks(kafka(), kafka(), kafka()),
    "rocketmq": looks(rocketmq(client(1, Q[0], Q[1]), client(2, Q[2], Q[3]))),
    "rocketmq, coordinated": looks(rocketmq(planned(1, *Q[:2]), planned(2, *Q[2:]), protocol="holdfast", generation=3)),
    "kafka, nobody and nothing": looks(
        kafka(members=(), state="empty", partitions=[at(P[0], None, end=0)], protocol="")
    ),
}


class Case(NamedTuple):
    found: Watched
    silent: Watched
    severity: Severity | None = None
    says: str = ""


def moving(generations: list[int], members: list[tuple[MemberView, ...]] | None = None) -> Watched:
    each = members or [()] * len(generations)
    return looks(*(kafka(*who, generation=number) for number, who in zip(generations, each, strict=True)))


def offsets(*pairs: tuple[PartitionView, PartitionView], **other: Any) -> Watched:
    before, after = zip(*pairs, strict=True)
    return looks(kafka(partitions=[*before], **other), kafka(partitions=[*after], **other))


#: As the command makes it where the coordinator gives no answer.
_NOBODY_TELLS = GroupView(kind="kafka", group="billing", state="", protocol="")
_ONE, _TWO, _THREE = (member(number, P[number]) for number in (1, 2, 3))

CASES: list[tuple[str, Case]] = [
    ("no-coordinator", Case(looks(kafka(coordinator=None)), looks(rocketmq(client(1, *Q))), says="partition 3 of")),
    ("no-leader", Case(looks(kafka(partitions=[at(P[0]), at(P[1], leader=None)])), looks(kafka()), says="orders-1")),
    (
        "no-leader",
        Case(looks(rocketmq(client(1, Q[0]), partitions=[at(Q[0], leader=None)])), looks(kafka()), says="no master"),
    ),
    ("rebalance-loop", Case(moving([7, 9]), moving([7, 7, 7]), says="generation 7 to 9")),
    ("rebalance-loop", Case(moving([7, 8]), moving([7, 7]), Severity.NOTE)),
    # A look that met no coordinator, or could not ask for the epoch, shows no change.
    (
        "rebalance-loop",
        Case(looks(kafka(), _NOBODY_TELLS, kafka(generation=9)), looks(kafka(), _NOBODY_TELLS, kafka())),
    ),
    (
        "rebalance-loop",
        Case(
            looks(kafka(), kafka(generation=None), kafka(generation=9)),
            looks(kafka(generation=None), kafka(), kafka(generation=None), kafka()),
        ),
    ),
    (
        "rebalance-loop",  # a classic group: no generation is told
        Case(
            looks(*(kafka(*who, generation=None) for who in ((_ONE, _TWO), (_ONE,), (_ONE, _THREE)))),
            looks(*(kafka(*who, generation=None) for who in ((_ONE, _TWO), (_ONE, _TWO), (_ONE, _TWO)))),
            says="joined or left: static-2 at 10.0.0.2, static-3 at 10.0.0.3",
        ),
    ),
    (
        "rebalance-stuck",
        Case(
            looks(kafka(state="reconciling"), kafka(state="reconciling")),
            looks(kafka(state="reconciling"), kafka()),
            says="reconciling for at least 10 s",
        ),
    ),
    (
        "rebalance-stuck",
        Case(
            looks(*[kafka(member(1, *P[:2], target=frozenset(P[:1])), member(2), state="reconciling")] * 2),
            moving([7, 9]),
            says="waits for static-1",
        ),
    ),
    (
        "foreign-members",
        Case(
            looks(rocketmq(planned(1, Q[0]), client(2, Q[0]))),
            HEALTHY["rocketmq, coordinated"],
            says="app-2 at 10.0.0.2",
        ),
    ),
    (
        "client-id-doubled",
        Case(looks(rocketmq(client(1, *Q, connections=2))), HEALTHY["rocketmq"], says="2 connections of one client id"),
    ),
    (
        "subscriptions-differ",
        Case(
            looks(rocketmq(client(1, Q[0]), client(2, Q[1], expressions={"orders": "Paid"}))),
            looks(rocketmq(client(1, Q[0]), client(2, Q[1], expressions={"orders": "*", "%RETRY%billing": "*"}))),
            says="orders [Paid]: app-2",
        ),
    ),
    (
        "subscriptions-differ",
        Case(
            looks(kafka(member(1, P[0]), member(2, P[1], topics=frozenset({"orders", "refunds"})))),
            looks(kafka(member(1, P[0]), member(2, P[1], topics=None))),
            Severity.NOTE,
        ),
    ),
    (
        "read-twice",
        Case(
            looks(*[rocketmq(client(1, Q[0], Q[1]), client(2, Q[1]))] * 2),
            looks(rocketmq(client(1, Q[0]), client(2, Q[1])), rocketmq(client(1, Q[0], Q[1]), client(2, Q[1]))),
            says=str(Q[1]),
        ),
    ),
    (
        "read-by-nobody",
        Case(
            looks(*[kafka(member(1, P[0]), member(2, P[1]))] * 2),
            looks(kafka(member(1, P[0]), member(2, P[1])), kafka()),
            says="orders-2, orders-3",
        ),
    ),
    (
        "read-by-nobody",
        Case(
            looks(rocketmq(client(1, *Q[:3]))),
            looks(
                rocketmq(
                    client(1, *Q, topics=frozenset({"orders", "%RETRY%billing"})),
                    partitions=[at(Partition("%RETRY%billing", 0, "broker-a"))],
                ),
            ),
        ),
    ),
    (
        "read-by-nobody",  # one of them does not tell
        Case(looks(rocketmq(client(1, *Q[:3]))), looks(rocketmq(client(1, *Q[:3]), client(2, partitions=None)))),
    ),
    (
        "static-ids-doubled",
        Case(
            looks(kafka(), kafka(member(1, *P[:2]), replace(member(2, *P[2:]), id="other"))),
            looks(kafka(), kafka()),
            says="taken over 1 time within",
        ),
    ),
    (
        "static-ids-doubled",
        Case(
            looks(*(kafka(replace(member(2, *P), id=name)) for name in ("a", "b", "a"))),
            looks(*[kafka(member(1, *P))] * 3),
            Severity.ERROR,
            says="taken over 2 times",
        ),
    ),
    (
        "protocols-differ",
        Case(looks(kafka(member(1, *P[:2]), member(2, *P[2:], protocol="classic"))), looks(kafka()), says="1 classic"),
    ),
    (
        "assignors-differ",
        Case(
            looks(kafka(member(1, *P[:2], assignors=("range",)), member(2, *P[2:], assignors=("roundrobin", "range")))),
            looks(kafka(member(1, *P[:2], assignors=("range",)), member(2, *P[2:], assignors=("range",)))),
        ),
    ),
    ("group-eager", Case(looks(kafka(protocol="classic", assignor="range")), looks(kafka(assignor="range")))),
    (
        "member-behind",
        Case(
            looks(*[kafka(member(1, *P[:2], target=frozenset(P[:1])), member(2))] * 2),
            looks(kafka(member(1, *P[:2], target=frozenset(P[:1])), member(2)), kafka()),
            says="static-1 at 10.0.0.1: has not given up orders-1 yet",
        ),
    ),
    (
        "members-idle",
        Case(
            looks(kafka(*(member(number, *P[number : number + 1]) for number in range(6)))),
            looks(kafka(*(member(number, *P[number : number + 1]) for number in range(4)))),
            says="2 of 6 members without a partition",
        ),
    ),
    (
        "members-idle",
        Case(
            looks(kafka(member(1, P[0]), member(2), partitions=[at(P[0])])),
            looks(kafka(member(1, P[0]), member(2), partitions=[at(P[0])], state="reconciling")),
        ),
    ),
    (
        "spread-uneven",
        Case(
            looks(kafka(member(1, *P[:3]), member(2, P[3]))),
            looks(kafka()),
            says="static-1 at 10.0.0.1 has 3 partitions",
        ),
    ),
    (
        "spread-uneven",  # weights
        Case(
            looks(rocketmq(planned(1, *Q[:2], weight=3), planned(2, *Q[2:]))),
            looks(rocketmq(planned(1, *Q[:3], weight=3), planned(2, Q[3]))),
        ),
    ),
    (
        "spread-uneven",  # what subscribes otherwise is not compared
        Case(
            looks(kafka(member(1, *P[:3]), member(2, P[3]))),
            looks(kafka(member(1, *P[:3]), member(2, P[3], topics=frozenset({"refunds"})))),
        ),
    ),
    (
        "static-ids-missing",
        Case(
            looks(kafka(member(1, *P[:2]), member(2, *P[2:], instance_id=None))),
            looks(kafka()),
            Severity.WARNING,
            says="1 of 2 members",
        ),
    ),
    (
        "static-ids-missing",
        Case(looks(kafka(*(member(n, P[n], instance_id=None) for n in (1, 2)))), HEALTHY["rocketmq"], Severity.NOTE),
    ),
    ("member-dead", Case(looks(rocketmq(planned(1, *Q, lease_left_s=0))), HEALTHY["rocketmq, coordinated"])),
    (
        "records-lost",
        Case(looks(kafka(partitions=[at(P[0], 100, first=150)])), looks(kafka()), says="50 records"),
    ),
    ("offset-beyond-log", Case(looks(kafka(partitions=[at(P[0], 101)])), looks(kafka()), says="the log ends at 100")),
    (
        "lag-growing",
        Case(
            offsets((at(P[0], 100, end=200), at(P[0], 150, end=1_200))),
            # 1,000 a second are produced and handled, and the last commit was five seconds ago.
            offsets((at(P[0], 1_000, end=1_000), at(P[0], 6_000, end=11_000))),
            says="100 to 1,050 records behind within 10 s: 100/s are produced, 5/s handled",
        ),
    ),
    (
        "partition-stands-still",
        Case(
            offsets((at(P[0], 50), at(P[0], 50)), (at(P[1], 50), at(P[1], 60))),
            # Nothing was there to be handled at the first look.
            offsets((at(P[0], 100), at(P[0], 100, end=200))),
            says="orders-0: 50 records behind",
        ),
    ),
    (
        "partition-stands-still",
        Case(
            offsets((at(P[0], 50), at(P[0], 50))),
            looks(kafka(partitions=[at(P[0], 50)]), kafka(partitions=[at(P[0], 50)]), every_s=9.9),
        ),
    ),
    (
        "never-committed",
        Case(offsets((at(P[0], None), at(P[0], None))), offsets((at(P[0], None, end=0), at(P[0], None, end=5)))),
    ),
    (
        "records-nearly-lost",
        Case(
            looks(kafka(partitions=[at(P[0], 105, first=100, end=200)])),
            looks(kafka(partitions=[at(P[0], 5, first=0, end=200), at(P[1], 150, first=100, end=200)])),
        ),
    ),
    (
        "offsets-expiring",
        Case(
            looks(kafka(members=(), state="empty", offsets_retention_s=7 * 86_400)),
            looks(rocketmq()),
            says="after 7 days, counted from the last member's leave",
        ),
    ),
    (
        "offsets-expiring",
        Case(
            looks(kafka(partitions=[at(each) for each in (*P, Partition("refunds", 0))])),
            looks(kafka(member(1, *P, topics=None), partitions=[at(Partition("refunds", 0))])),
            says="refunds: offsets that are not renewed",
        ),
    ),
    (
        "no-members",
        Case(
            looks(rocketmq(partitions=[at(Q[0], 40)])),
            looks(kafka(members=(), state="empty")),
            says="60 records to read",
        ),
    ),
    (
        "retry-topic-loses",
        Case(
            looks(kafka(keeping={"orders.billing.retry.10min": Keeping(kept_s=600)})),
            looks(kafka(keeping={"orders.billing.retry.10min": Keeping(kept_s=86_400)})),
            says="may be deleted before they are tried again",
        ),
    ),
    (
        "retry-topic-loses",
        Case(
            looks(kafka(keeping={"orders.billing.retry.10min": Keeping(kept_s=900)})),
            looks(kafka(keeping={"orders.shipping.retry.10min": Keeping(compacted=True)})),
            severity=Severity.WARNING,
            says="deleted if no member runs for 300 s longer",
        ),
    ),
    ("topic-gone", Case(looks(kafka(partitions=[at(P[0], exists=False, end=None)])), looks(kafka()))),
]

_IDS = [f"{rule}-{number}" for number, (rule, _) in enumerate(CASES)]


@pytest.mark.parametrize(("rule", "case"), CASES, ids=_IDS)
def test_a_rule_finds_its_trouble(rule: str, case: Case) -> None:
    found = {each.rule: each for each in examine_group(case.found)}
    assert rule in found
    [row] = [each for each in GROUP_RULES if each.name == rule]
    assert found[rule].severity is (case.severity or row.severity)
    assert case.says in f"{found[rule].where}: {found[rule].found} {found[rule].why}"


@pytest.mark.parametrize(("rule", "case"), CASES, ids=_IDS)
def test_a_rule_is_silent_where_there_is_no_trouble(rule: str, case: Case) -> None:
    assert rule not in {each.rule for each in examine_group(case.silent)}


@pytest.mark.parametrize("name", HEALTHY)
def test_of_a_healthy_group_nothing_is_said(name: str) -> None:
    assert examine_group(HEALTHY[name]) == []


def test_each_rule_is_shown_both_ways() -> None:
    assert {rule for rule, _ in CASES} == {each.name for each in GROUP_RULES}
    assert {rule for rule, *_ in JOINING} == {each.name for each in JOINING_RULES}


def test_there_has_to_be_a_look() -> None:
    with pytest.raises(SettingError, match="one look or more"):
        Watched(views=(), at_s=())


# -- a configuration and the group that it is for ----------------------------------------------------------------------

_CLASSIC: dict[str, object] = {"group.id": "billing", "partition.assignment.strategy": "cooperative-sticky"}
_CONSUMER: dict[str, object] = {"group.id": "billing", "group.protocol": "consumer", "group.remote.assignor": "uniform"}

JOINING: list[tuple[str, dict[str, object], GroupView, dict[str, object]]] = [
    ("joins-another-group", {**_CONSUMER, "group.id": "billing2"}, kafka(), _CONSUMER),
    (
        "joins-without-common-assignor",
        _CLASSIC,
        kafka(protocol="classic", assignor="range"),
        {**_CLASSIC, "partition.assignment.strategy": "roundrobin,range"},
    ),
    ("joins-with-other-assignor", {**_CONSUMER, "group.remote.assignor": "range"}, kafka(), _CONSUMER),
    ("joins-with-other-protocol", _CONSUMER, kafka(protocol="classic", assignor="range"), _CLASSIC),
    ("joins-with-other-protocol", _CLASSIC, kafka(), {**_CLASSIC, "group.protocol": "${PROTOCOL}"}),
    (
        "static-id-taken",
        {**_CONSUMER, "group.instance.id": "static-2"},
        kafka(),
        {**_CONSUMER, "group.instance.id": "static-3"},
    ),
]


@pytest.mark.parametrize(("rule", "found", "group", "silent"), JOINING)
def test_a_configuration_is_held_against_the_group_that_it_is_for(
    rule: str, found: dict[str, object], group: GroupView, silent: dict[str, object]
) -> None:
    def said(conf: dict[str, object], view: GroupView) -> set[str]:
        return {each.rule for each in examine_joining(ClientConf(conf, client=Client.LIBRDKAFKA), view)}

    assert rule in said(found, group)
    assert rule not in said(silent, group)
    # Nobody to differ from; but for its name.
    assert said(found, replace(group, members=())) <= {"joins-another-group"}
