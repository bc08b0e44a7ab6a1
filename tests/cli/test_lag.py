"""`holdfast lag` on the real servers: the right numbers, whatever the group is doing, and never a wrong 0."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.cli.crew import Crew
from tests.harness.kafka_brokers import closed_port
from tests.harness.rocketmq_field import Field
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Here
    from tests.harness.servers.kafka import KafkaServer
    from tests.harness.servers.rocketmq import RocketMQServer

__all__ = ["closed_port"]

LEASE_S = 60.0  # nobody is to be lost to a slow machine


@pytest.fixture
def crew(kafka: KafkaServer, here: Here) -> Iterator[Crew]:
    """Three partitions with 10, 20 and 0 records; members share them out by range."""
    with Crew(kafka, here, partition_assignment_strategy="range") as made:
        kafka.create_topic(made.topic, 3)
        made.produce(10, 0)
        made.produce(20, 1)
        yield made


def rows(told: str) -> dict[str, list[str]]:
    """The tables' rows by their first column."""
    return {cells[0]: cells[1:] for cells in (line.split() for line in told.splitlines()) if cells}


def test_lag_is_told_by_partition_and_by_member_and_an_offset_that_is_missing_is_no_0(crew: Crew) -> None:
    crew.join("till-1")
    crew.join("till-2")
    crew.settled()
    crew.commit({0: 4}, by="till-1")
    told = crew.tell("lag")
    assert told.startswith(f"{crew.group} at Kafka: stable, 2 members, classic protocol with range, coordinator 1")
    found = rows(told)
    assert found[f"{crew.topic}-0"] == ["till-1", "4", "10", "6"]
    assert found[f"{crew.topic}-1"] == ["till-1", "-", "20", "-", "never", "committed;", "20", "in", "the", "log"]
    assert found[f"{crew.topic}-2"] == ["till-2", "-", "0", "0", "never", "committed;", "the", "log", "is", "empty"]
    assert found["till-1"][1:] == ["2", "6,", "unknown", "in", "1"]
    assert found["till-2"][1:] == ["1", "0"]
    assert "lag: 6 in 2 partitions, unknown in 1, 1 without a committed offset (20 records in the log)" in told

    group, *partitions = map(json.loads, crew.tell("lag", "--json").splitlines())
    assert (group["lag"], group["lag_known"], group["lag_not_known_in"]) == (None, 6, 1)
    assert [(each["lag"], each["state"]) for each in partitions] == [
        (6, "known"), (None, "never_committed"), (0, "never_committed"),
    ]  # fmt: skip


def test_while_a_group_rebalances_and_when_it_is_empty_the_numbers_stay_right(crew: Crew) -> None:
    crew.join("till-1")
    crew.settled()
    crew.commit({0: 4, 1: 20}, by="till-1")
    # Who does not poll keeps the classic protocol's rebalance from ending.
    crew.join("till-2")
    crew.until(lambda view: view.state == "preparing rebalance", "till-2")
    told = crew.tell("lag")
    assert [rows(told)[f"{crew.topic}-{number}"][:4] for number in range(3)] == [
        ["?", "4", "10", "6"], ["?", "20", "20", "0"], ["?", "-", "0", "0"],
    ]  # fmt: skip
    assert "the group rebalances: the broker does not report the partitions' owners now" in told
    crew.settled()
    crew.leave("till-2")
    crew.leave("till-1")
    crew.until(lambda view: view.state == "empty")
    told = crew.tell("lag")
    assert rows(told)[f"{crew.topic}-0"] == ["-", "4", "10", "6"]
    assert "lag: 6 in 3 partitions, nobody consumes" in told


def test_an_offset_beyond_the_logs_end_is_a_problem_and_no_0(crew: Crew) -> None:
    crew.join("till-1")
    crew.settled()
    crew.commit({0: 11, 1: 20}, by="till-1")
    told = crew.tell("lag", code=1)
    assert rows(told)[f"{crew.topic}-0"][:4] == ["till-1", "11", "10", "-"]
    assert "the offset is beyond the log's end: the topic was made again, or has lost records" in told


def test_the_consumer_protocol_tells_what_is_on_its_way(kafka: KafkaServer, here: Here) -> None:
    with Crew(kafka, here, group_protocol="consumer") as crew:
        kafka.create_topic(crew.topic, 2)
        crew.join("till-1")
        crew.settled()
        crew.join("till-2")
        crew.until(lambda view: any(each.target != each.partitions for each in view.members), "till-2")
        told = crew.tell("lag")
        assert "consumer protocol with uniform, epoch" in told
        assert told.count("moves to till-2") == 1


def test_watching_tells_rates_and_ends_when_it_is_told(crew: Crew) -> None:
    crew.join("till-1")
    crew.settled()
    crew.commit({0: 4, 1: 20, 2: 0}, by="till-1")
    told = crew.tell("lag", "--watch", "--every", "0.2", "--count", "2")
    first, second = told.split(f"\n\n{crew.group} at")
    assert "READ/S" in first
    assert rows(second)[f"{crew.topic}-0"] == ["till-1", "4", "10", "6", "0.0", "0.0", "never"]


def test_a_group_of_rocketmq_is_told_with_the_members_of_the_plan_in_redis(
    rocketmq: RocketMQServer, redis_url: str, here: Here
) -> None:
    with Field(rocketmq, redis_url, queues=2) as field:
        where = ("lag", "--group", field.group, "--namesrv", rocketmq.namesrv)
        field.produce("a", "b", "c")
        app = field.app(lease_s=LEASE_S)
        field.wait_handled("a", "b", "c")
        field.wait_committed()
        told = here(*where, "--redis", redis_url).stdout
        owner = app.source._client.client_id
        assert rows(told)[f"{field.topic}-broker-a-0"] == [owner, "2", "2", "0"]
        assert "holdfast's plan, generation" in told
        assert "only its Redis knows the owners" in here(*where).stdout
        app.stop()
        field.produce("d", "e", "f", queue=1)
        told = here(*where, "--topic", field.topic).stdout
        assert rows(told)[f"{field.topic}-broker-a-1"] == ["-", "1", "4", "3"]
        assert "lag: 3 in 2 partitions, nobody consumes" in told


def test_a_group_in_redis_is_shown_and_is_forgotten_once_nobody_lives(
    rocketmq: RocketMQServer, redis_url: str, here: Here
) -> None:
    with Field(rocketmq, redis_url, queues=3) as field:
        where = ("--group", field.group, "--redis", redis_url)
        app = field.app(lease_s=LEASE_S)
        field.wait(lambda: len(app.owns) == 3)
        told = here("group", "show", *where).stdout
        assert told.startswith(f"{field.group}: 1 member, plan ")
        # Its three, and the retry topic's as soon as there is one.
        assert re.search(rf"{app.source._client.client_id} .* 1 +[34]  (for|over)", told)
        refused = here("group", "remove", *where, "--yes", "--json", code=1)
        assert "has live members" in refused.stderr
        told = json.loads(refused.stdout)
        assert (told["type"], told["done"], told["may_be_removed"]) == ("removed", False, False)
        assert "has live members" in told["error"]
        app.stop()
        assert "say --yes" in here("group", "remove", *where, code=1).stderr
        here("group", "remove", *where, "--yes")
        assert "has no group" in here("group", "show", *where, code=1).stderr


def test_a_topic_that_may_not_be_seen_is_left_out_of_no_sum_in_silence_and_a_group_is_refused(crew: Crew) -> None:
    other = f"{crew.topic}-secret"
    crew.kafka.create_topic(other, 1)
    crew.join("till-1", [crew.topic, other])
    crew.settled()
    crew.kafka.forbid("topic", other)
    crew.until(lambda view: bool(view.unseen))
    told = crew.tell("lag", code=1)
    assert f"without {other}, which cannot be described" in told
    assert "Topic authorization failed" in told
    crew.kafka.forbid("group", crew.group)
    until(lambda: not crew.run("lag", code=1).stdout)  # the broker has yet to hear of it
    ran = crew.run("lag", code=1)
    assert "Group authorization failed" in ran.stderr
    assert [line[:6] for line in ran.stderr.splitlines()[1:]] == ["docs: "]


def test_what_cannot_work_is_one_sentence_and_an_exit_code(
    kafka: KafkaServer, rocketmq: RocketMQServer, closed_port: str, here: Here
) -> None:
    where = ("--bootstrap", kafka.bootstrap)
    for arguments, code, said in (
        (("--group", "nobody", *where), 1, "has no group 'nobody': no member, and no offset"),
        (("--group", "nobody", "--namesrv", rocketmq.namesrv), 1, "has no group 'nobody': no member, and no offset"),
        (("--group", "g", "--bootstrap", closed_port, "--timeout", "1"), 3, "check the address"),
        (("--group", "g", "--namesrv", closed_port, "--timeout", "1"), 3, closed_port),
        (("--group", "g"), 2, "--bootstrap: give host:port of a Kafka broker"),
        (("--group", "g", "--kafka-config", "/nowhere"), 2, "the file cannot be read"),
    ):
        ran = here("lag", *arguments, code=code)
        assert said in ran.stderr, ran.stderr
        # Where nothing listens a line before it says that it is tried for a while.
        assert [line for line in ran.stderr.splitlines() if "; trying for another" not in line] == [
            ran.stderr.splitlines()[-1]
        ]
        assert not ran.stdout
