"""`holdfast plan` on the real servers: what it says would happen is what then happens."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from holdfast import RedisClaims, RedisCoordinator
from holdfast.adapters.cli.lag_rates import names
from holdfast.adapters.rocketmq.remoting import RemotingClient
from holdfast.adapters.rocketmq.tools.groups import RocketMQGroupViews
from holdfast.plugin.assign.java import offsets_partition
from holdfast.timing import Deadline
from tests.cli.bench import holdfast
from tests.cli.crew import Crew
from tests.golden.oracle import ROCKETMQ_LIB, Oracle
from tests.harness.kafka_brokers import closed_port
from tests.harness.rocketmq_field import Field
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.tools.advice.group_view import GroupView
    from tests.cli.conftest import Here
    from tests.harness.servers.kafka import KafkaServer
    from tests.harness.servers.rocketmq import RocketMQServer

__all__ = ["closed_port"]

LEASE_S = 60.0  # nobody is to be lost to a slow machine


class Told:
    """A plan's JSON."""

    def __init__(self, text: str) -> None:
        self.plan, *rest = map(json.loads, text.splitlines())
        self.sizes = {each["name"]: each["after"] for each in rest if each["type"] == "member"}
        self.moves = [each for each in rest if each["type"] == "move"]

    def after(self, before: dict[int, str]) -> dict[int, str]:
        """Who is to have which partition of the one topic."""
        return before | {each["partition"]: each["to"] for each in self.moves}


def owners(view: GroupView) -> dict[int, str]:
    called = names(view)
    return {partition.number: called[member.id] for partition, member in view.owners.items()}


def sizes(found: dict[int, str]) -> list[int]:
    return sorted(list(found.values()).count(name) for name in set(found.values()))


@pytest.mark.parametrize(
    ("conf", "exact"),
    [
        pytest.param({"partition_assignment_strategy": "range"}, True, marks=pytest.mark.full),
        pytest.param({"partition_assignment_strategy": "cooperative-sticky"}, False, marks=pytest.mark.full),
        ({"group_protocol": "consumer"}, False),
    ],
)
def test_a_forecast_for_a_live_group_of_kafka_comes_true(
    kafka: KafkaServer, here: Here, conf: dict[str, Any], exact: bool
) -> None:
    with Crew(kafka, here, **conf) as crew:
        kafka.create_topic(crew.topic, 7)
        crew.join("till-1")
        crew.join("till-2")
        before = crew.settled()
        for arguments, change in (
            (("--join", "1"), lambda: crew.join("till-3")),
            (("--leave", "till-1"), lambda: crew.leave("till-1")),
        ):
            told = Told(crew.tell("plan", *arguments, "--json"))
            change()
            after = crew.settled()
            was, is_ = owners(before), owners(after)
            if exact:
                assert told.after(was) == is_
            assert sizes(told.after(was)) == sizes(is_)
            assert told.plan["move"] == sum(was[number] != is_[number] for number in was)
            # Who coordinates, by our own arithmetic and by the broker's answer.
            number = offsets_partition(crew.group, len(kafka.partitions("__consumer_offsets")))
            assert told.plan["offsets_partition"] == number
            assert told.plan["offsets_leader"] == told.plan["coordinator"] == kafka.bootstrap
            before = after


@pytest.mark.parametrize(
    "lists",
    [
        {"a": "range,roundrobin", "b": "roundrobin,range"},
        {"a": "roundrobin,range", "b": "range,roundrobin", "c": "roundrobin,range"},
    ],
)
def test_the_vote_on_the_assignor_is_the_brokers(
    kafka: KafkaServer, here: Here, tmp_path: Path, lists: dict[str, str]
) -> None:
    with Crew(kafka, here) as crew:
        kafka.create_topic(crew.topic, 4)
        for name, listed in lists.items():
            crew.join(name, partition_assignment_strategy=listed)
        view = crew.settled()
        members = [{"id": name, "assignors": listed.split(",")} for name, listed in lists.items()]
        (tmp_path / "group.json").write_text(json.dumps({"topics": {"orders": 4}, "members": members}))
        told = Told(here("plan", "--described", tmp_path / "group.json", "--json").stdout)
        assert told.plan["assignor"] == view.assignor


def test_a_group_that_rebalances_cannot_be_planned_for_and_says_so(kafka: KafkaServer, here: Here) -> None:
    with Crew(kafka, here, partition_assignment_strategy="range") as crew:
        kafka.create_topic(crew.topic, 2)
        crew.join("till-1")
        crew.settled()
        crew.join("till-2")
        crew.until(lambda view: view.state == "preparing rebalance", "till-2")
        ran = here("plan", "--group", crew.group, "--bootstrap", kafka.bootstrap, code=3)
        assert "try again when it is stable" in ran.stderr


@pytest.mark.parametrize("strategy", ["sticky", pytest.param("AVG", marks=pytest.mark.full)])
def test_a_forecast_for_a_group_that_holdfast_coordinates_comes_true(
    rocketmq: RocketMQServer, redis_url: str, here: Here, strategy: str
) -> None:
    with Field(rocketmq, redis_url, queues=7) as field, closing(RedisClaims.from_url(redis_url)) as store:
        store.connect()
        coordinator = RedisCoordinator(store)

        def plan() -> dict[int, str]:
            state = coordinator.describe(field.group)
            called = {each.id: each.client_id for each in state.members}
            return {
                queue.number: called[owner] for queue, owner in state.plan.owners.items() if queue.topic == field.topic
            }

        def settle(count: int) -> dict[int, str]:
            field.wait(lambda: len(set(plan().values())) == count and coordinator.describe(field.group).settled)
            return plan()

        apps = [field.app(name, instance_name=name, allocate_strategy=strategy, lease_s=LEASE_S) for name in ("a", "b")]
        before = settle(2)
        third = apps[0].source._client.client_id.replace("@a#", "@c#")
        told = Told(
            here(
                *("plan", "--group", field.group, "--namesrv", rocketmq.namesrv, "--redis", redis_url, "--json"),
                *("--join", third, "--assignor", strategy),
            ).stdout
        )
        field.app("c", instance_name="c", allocate_strategy=strategy, lease_s=LEASE_S)
        after = settle(3)
        # The last part of a client id is another at each start.
        short = {name: name.partition("#")[0] for name in {*told.sizes, *after.values()}}
        forecast = {number: short[name] for number, name in told.after(before).items()}
        happened = {number: short[name] for number, name in after.items()}
        if strategy == "AVG":
            assert forecast == happened
        assert sizes(forecast) == sizes(happened)
        assert told.plan["move"] == sum(short[before[number]] != happened[number] for number in before)


def test_a_forecast_for_rocketmqs_own_java_members_comes_true(
    rocketmq: RocketMQServer, redis_url: str, here: Here
) -> None:
    with Field(rocketmq, redis_url, queues=8) as field, Oracle("RocketMQMembers.java", ROCKETMQ_LIB) as java:
        look = RocketMQGroupViews(lambda: RemotingClient(rocketmq.namesrv), field.group)

        def start(name: str) -> str:
            member = f"{name}-{field.group}"
            return java.ask(f"start\t{member}\t{rocketmq.namesrv}\t{field.group}\t{field.topic}=*")

        def settle(*clients: str) -> dict[int, str]:
            ends = Deadline(PATIENCE_S * 2)  # they look for each other each 20 s, if a notice is lost
            while True:
                view = look.view(Deadline(PATIENCE_S))
                mine = [(queue, each.client_id) for each in view.members for queue in each.partitions or ()]
                found = {queue.number: client for queue, client in mine if queue.topic == field.topic}
                # Each queue once, and everybody has some: while it moves, two have it or nobody.
                once = len([queue for queue, _ in mine if queue.topic == field.topic]) == 8 == len(found)
                if once and set(found.values()) == set(clients):
                    return found
                assert not ends.passed, view

        first = start("a")
        second = start("b")
        before = settle(first, second)
        third = first.replace("@a-", "@c-")
        told = Told(
            here(*("plan", "--group", field.group, "--namesrv", rocketmq.namesrv, "--json", "--join", third)).stdout
        )
        assert start("c") == third
        assert told.after(before) == settle(first, second, third)
        for name in ("a", "b", "c"):
            assert java.ask(f"stop\t{name}-{field.group}") == "ok"
        look.close()


def test_a_described_group_is_told_in_words_and_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    told = holdfast(
        *("plan", "--group", "billing", "--topics", "orders=3,payments=3", "--members", "2", "--assignor", "range"),
        *("--join", "1", "--picture", picture),
    ).stdout
    assert told.startswith("billing as described: 2 members, 6 partitions\noffsets are in __consumer_offsets-9 of 50")
    assert "before: 2 members have 2 to 4 partitions (member-1 4, member-2 2): 2 apart" in told
    assert "after: 3 members have 2 partitions each" in told
    assert "  from member-1 to member-2: 2 (orders-1, payments-1)" in told
    assert "PARTITION   FROM      TO\norders-1    member-1  member-2" in told
    assert "meanwhile all partitions stop, whether or not they move" in told
    assert ET.parse(picture).getroot().tag.endswith("svg")  # noqa: S314 - our own


def test_what_cannot_be_planned_is_one_sentence_and_an_exit_code(
    kafka: KafkaServer, tmp_path: Path, closed_port: str, here: Here
) -> None:
    file = tmp_path / "group.json"
    simple = ("--topics", "orders=3", "--members", "2")
    for content, arguments, code, said in (
        ("", ("--described", file), 2, "the file is no valid JSON"),
        ("[]", ("--described", file), 2, "the whole is to be an object"),
        ('{"topics": {"orders": 0}, "members": 1}', ("--described", file), 2, "topics.orders is to be a whole number"),
        ('{"topics": {"o": 1}, "members": [{"id": "a", "instance_id": 1}]}', ("--described", file), 2, "to be a name"),
        ('{"topics": {"o": 1}, "members": [{"id": "a", "has": 1}]}', ("--described", file), 2, "a member says 'has'"),
        (
            '{"topics": {"o": 1}, "members": [{"id": "a", "assignors": ["range"]}, {"id": "b", "assignors": ["x"]}]}',
            ("--described", file), 2, "no assignor is on every member's list",
        ),
        ("", ("--group", "nobody", "--bootstrap", kafka.bootstrap), 1, "has no group 'nobody'"),
        ("", ("--group", "g", "--bootstrap", closed_port, "--timeout", "1"), 3, "check the address"),
        ("", (*simple, "--leave", "till-9"), 2, "no member is called that; there are member-1, member-2"),
        ("", (*simple, "--join", "member-1"), 2, "one of these is taken"),
        ("", (*simple, "--assignor", "best"), 2, "use one of range"),
        ("", (*simple, "--grow", "orders=2"), 2, "it already has 3: use a higher number"),
        ("", (*simple, "--picture", "/nowhere/plan.svg"), 2, "the file cannot be written"),
        ("", (*simple, "--picture", "plan.png"), 2, "it is drawn as SVG"),
    ):  # fmt: skip
        file.write_text(content)
        ran = here("plan", *arguments, code=code)
        assert said in ran.stderr, ran.stderr
        assert ran.stderr.count("\n") == 1, ran.stderr


def test_a_plan_shows_who_has_what(here: Here) -> None:
    described = ("plan", "--topics", "a=3", "--members", "2", "--assignor", "range", "--join", "1")
    told = here(*described).stdout
    assert "PARTITION  MEMBER\na-0        member-1\na-1        member-2\na-2        member-3\n" in told
    found = [json.loads(line) for line in here(*described, "--json").stdout.splitlines()]
    assert [each for each in found if each["type"] == "owner"] == [
        {"type": "owner", "topic": "a", "partition": 0, "before": "member-1", "after": "member-1"},
        {"type": "owner", "topic": "a", "partition": 1, "before": "member-1", "after": "member-2"},
        {"type": "owner", "topic": "a", "partition": 2, "before": "member-2", "after": "member-3"},
    ]


def test_what_is_nobodys_is_said(here: Here) -> None:
    told = here("plan", "--topics", "a=10", "--members", "0").stdout
    assert "10 partitions without an owner: a-0, a-1, a-2, a-3, a-4, a-5, a-6, a-7 and 2 more" in told
    assert "PARTITION" not in told
