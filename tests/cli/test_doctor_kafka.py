"""`holdfast doctor` on live groups of a real Kafka in which the trouble is really made."""

from __future__ import annotations

import ctypes
import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from examples.lab.mock_broker import MockCluster, librdkafka
from holdfast.timing import Deadline
from holdfast.tools.advice.doctor import Severity, Watched, examine_group
from tests.cli.bench import lines
from tests.cli.crew import Crew
from tests.harness.kafka_brokers import closed_port
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.tools.advice.doctor import Finding
    from holdfast.tools.advice.group_view import GroupView
    from tests.cli.conftest import Here
    from tests.harness.servers.kafka import KafkaServer

__all__ = ["closed_port"]

ONCE = ("--looks", "1")


def asked(crew: Crew, *more: object) -> tuple[object, ...]:
    return ("doctor", "--group", crew.group, "--bootstrap", crew.kafka.bootstrap, "--json", *more)


def found(ran: object) -> dict[str, dict[str, str]]:
    """By rule."""
    return {each["rule"]: each for each in lines(ran) if each["type"] == "finding"}  # type: ignore[arg-type]


def watched(*views: GroupView, every_s: float = 1.0) -> list[Finding]:
    """Looks that the test took itself, each after something that it waited for."""
    return examine_group(Watched(views=views, at_s=tuple(number * every_s for number in range(len(views)))))


@pytest.fixture
def crew(kafka: KafkaServer) -> Iterator[Crew]:
    """An eager group on a topic of two partitions."""
    with Crew(kafka, partition_assignment_strategy="range", heartbeat_interval_ms=500) as made:
        kafka.create_topic(made.topic, 2)
        yield made


def test_of_a_healthy_group_nothing_is_found(kafka: KafkaServer, here: Here) -> None:
    with Crew(kafka, group_protocol="consumer") as crew:
        kafka.create_topic(crew.topic, 2)
        crew.produce(5)
        for name in ("till-1", "till-2"):
            crew.join(name, group_instance_id=name)
        crew.settled()
        crew.commit({0: 5, 1: 0}, by="till-1")
        ran = here(*asked(crew, "--looks", 2, "--every", "200ms"), code=0)
        assert lines(ran) == [{"type": "diagnosis", "group": crew.group, "errors": 0, "warnings": 0, "notes": 0}]
        told = here("doctor", "--group", crew.group, "--bootstrap", kafka.bootstrap, *ONCE).stdout
        assert told == (
            f"group {crew.group} (stable, 2 members, consumer protocol, uniform, 0 behind in 2 partitions, 1 look): "
            "nothing found\n\n"
        )


def test_idle_members_an_eager_assignor_and_missing_static_ids_are_found(crew: Crew, here: Here) -> None:
    for name in ("till-1", "till-2"):
        crew.join(name)
    crew.join("till-3", group_instance_id="till-3")
    crew.settled()
    told = found(here(*asked(crew, *ONCE), code=4))
    assert told["members-idle"]["found"] == "1 of 3 members without a partition: there are only 2 partitions"
    assert told["group-eager"]["found"] == "assignor range"
    assert told["static-ids-missing"]["severity"] == "warning"
    assert "2 of 3 members" in told["static-ids-missing"]["found"]


def test_what_range_does_with_two_topics_is_found_uneven(crew: Crew, here: Here) -> None:
    """The worked example: two topics of three partitions, two members; the first gets four."""
    topics = [f"{crew.topic}-{number}" for number in range(2)]
    for topic in topics:
        crew.kafka.create_topic(topic, 3)
    for name in ("till-1", "till-2"):
        crew.join(name, topics, group_instance_id=name)
    crew.until(lambda view: sorted(len(each.partitions or ()) for each in view.members) == [2, 4])
    told = found(here(*asked(crew, *ONCE), code=4))
    assert "has 4 partitions, " in told["spread-uneven"]["found"]
    assert told["spread-uneven"]["found"].endswith(" 2")


def test_a_member_that_joins_and_leaves_in_a_loop_is_found(crew: Crew) -> None:
    crew.join("till-1")
    views = [crew.settled()]
    for _ in range(2):
        crew.join("moody")
        views.append(crew.until(lambda view: len(view.members) == 2))
        crew.leave("moody")
        views.append(crew.settled())
    [loop] = [each for each in watched(*views) if each.rule == "rebalance-loop"]
    assert loop.severity is Severity.ERROR
    assert loop.found == "the group changed 4 times in 5 looks within 4 s; joined or left: moody at 127.0.0.1"


def test_a_rebalance_that_waits_for_a_member_that_hangs_is_found(crew: Crew, here: Here) -> None:
    crew.join("hangs")
    crew.settled()
    crew.join("till-2")
    crew.until(lambda view: view.state == "preparing rebalance", "till-2")
    told = found(here(*asked(crew, "--looks", 2, "--every", "200ms"), code=1))
    assert told["rebalance-stuck"]["found"].startswith("preparing rebalance for ")
    assert "rebalance-loop" not in told
    crew.settled()


def test_a_member_that_does_not_give_up_what_moves_is_named(kafka: KafkaServer, here: Here) -> None:
    with Crew(kafka, group_protocol="consumer") as crew:
        kafka.create_topic(crew.topic, 2)
        crew.join("hangs", group_instance_id="till-1")
        crew.settled()
        crew.join("till-2", group_instance_id="till-2")
        crew.until(lambda view: any(each.target != each.partitions for each in view.members), "till-2")
        told = found(here(*asked(crew, "--looks", 2, "--every", "200ms", "--commit-interval", "100ms"), code=1))
        assert "waits for till-1 at 127.0.0.1" in told["rebalance-stuck"]["found"]
        assert told["member-behind"]["where"].startswith("till-")
        crew.settled()


def test_two_processes_that_fight_for_a_static_id_are_found(crew: Crew) -> None:
    """Each start throws the other out, and each is started again."""
    views: list[GroupView] = []
    for twin in ("twin-0", "twin-1", "twin-0"):
        had = {each.id for each in views[-1].members} if views else set()
        if twin in crew.members:
            crew.drop(twin)  # thrown out before
        crew.join(twin, group_instance_id="till")
        views.append(crew.until(lambda view: bool({each.id for each in view.members} - had), twin))  # noqa: B023 - at once
    [doubled] = [each for each in watched(*views) if each.rule == "static-ids-doubled"]
    assert doubled.severity is Severity.ERROR
    assert doubled.where == "till"
    assert doubled.found == "taken over 2 times within 2 s; first held by twin-0 at 127.0.0.1"


def test_members_of_two_protocols_are_found(kafka: KafkaServer, here: Here) -> None:
    with Crew(kafka) as crew:
        kafka.create_topic(crew.topic, 2)
        crew.join("old", group_instance_id="old")
        crew.settled()
        crew.join("new", group_protocol="consumer", group_instance_id="new")
        crew.until(lambda view: len(view.members) == 2 and view.protocol == "consumer")
        told = found(here(*asked(crew, *ONCE), code=(1, 4)))
        assert told["protocols-differ"]["found"] == "1 classic, 1 consumer"
        assert "old at 127.0.0.1" in told["protocols-differ"]["remedy"]


def test_a_configuration_that_the_live_group_would_refuse_is_found(crew: Crew, here: Here, tmp_path: Path) -> None:
    """Two members with assignors that have nothing in common: the second is really refused."""
    crew.join("till-1", group_instance_id="till-1")
    crew.settled()
    conf = {
        "bootstrap.servers": crew.kafka.bootstrap,
        "group.id": crew.group,
        "group.instance.id": "till-1",
        "partition.assignment.strategy": "cooperative-sticky",
    }
    file = tmp_path / "consumer.json"
    file.write_text(json.dumps(conf))
    told = found(here(*asked(crew, *ONCE, file), code=1))
    assert told["joins-without-common-assignor"]["severity"] == "error"
    assert "the broker would remove that member" in told["static-id-taken"]["why"]
    refused = Consumer({**conf, "group.instance.id": "till-2", "log_level": 0})
    refused.subscribe([crew.topic])
    ends, error = Deadline(PATIENCE_S), None
    while error is None:
        assert not ends.passed
        message = refused.poll(0.1)
        error = None if message is None else message.error()
    assert error.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL


def test_lag_that_grows_and_a_partition_that_stands_still_are_found(crew: Crew) -> None:
    crew.join("till-1", group_instance_id="till-1")
    crew.settled()
    crew.produce(10, 0)
    crew.produce(10, 1)
    crew.commit({0: 1, 1: 5}, by="till-1")
    before = crew.until(lambda view: sum(each.lag or 0 for each in view.partitions.values()) == 14)
    crew.produce(500, 0)
    crew.commit({0: 2}, by="till-1")
    after = crew.until(lambda view: sum(each.lag or 0 for each in view.partitions.values()) == 513)
    told = {each.rule: each for each in watched(before, after, every_s=10.0)}
    assert told["lag-growing"].where == f"{crew.topic}-0 (+499)"
    assert told["lag-growing"].found.startswith("14 to 513 records behind within 10 s: 50/s are produced, 0/s handled")
    assert told["partition-stands-still"].where == f"{crew.topic}-1"
    assert told["partition-stands-still"].found == "5 records behind, and the offset did not move within 10 s"


def test_offsets_that_expire_and_records_that_retention_has_taken_are_found(crew: Crew, here: Here) -> None:
    crew.produce(10, 0)
    crew.join("till-1")
    crew.settled()
    crew.commit({0: 4}, by="till-1")
    crew.leave("till-1")
    crew.until(lambda view: view.state == "empty")
    told = found(here(*asked(crew, *ONCE), code=4))
    assert "after 7 days, counted from the last member's leave" in told["offsets-expiring"]["why"]
    assert told["no-members"]["found"] == "no member, and 6 records to read"
    before = TopicPartition(crew.topic, 0, 7)
    crew.kafka.admin.delete_records([before])[before].result(PATIENCE_S)
    told = found(here(*asked(crew, *ONCE), code=1))
    assert told["records-lost"]["found"].startswith("retention dropped 3 records")


def test_a_coordinator_that_does_not_answer_is_what_is_wrong_with_the_group(here: Here) -> None:
    """By librdkafka's mock cluster of two: the one that coordinates is down, the other answers."""
    cluster = MockCluster(brokers=2)
    try:
        library = ctypes.CDLL(librdkafka()._name)
        handle = ctypes.c_void_p(cluster._cluster)
        library.rd_kafka_mock_coordinator_set(handle, b"group", b"billing", ctypes.c_int32(2))
        library.rd_kafka_mock_broker_set_down(handle, ctypes.c_int32(2))
        first = cluster.bootstrap_servers.split(",")[0]
        ran = here("doctor", "--group", "billing", "--bootstrap", first, "--timeout", 2, *ONCE, "--json", code=1)
        assert found(ran).keys() == {"no-coordinator"}
        assert "a broker answers, and the group's coordinator does not" in ran.stderr
    finally:
        cluster.close()


def test_what_cannot_work_is_one_sentence_and_an_exit_code(
    kafka: KafkaServer, here: Here, closed_port: str, tmp_path: Path
) -> None:
    there = ("--bootstrap", kafka.bootstrap)
    for arguments, code, said in (
        (("--group", "nobody", *there), 1, "has no group 'nobody': no member, and no offset"),
        (("--group", "g", "--bootstrap", closed_port, "--timeout", "1"), 3, "check the address"),
        (("--group", "g"), 2, "--bootstrap: give host:port of a Kafka broker"),
        ((), 2, "name a file with a consumer's configuration, or a live group with --group"),
        (("--group", "g", *there, tmp_path / "none"), 2, "cannot be read (No such file or directory)"),
    ):
        ran = here("doctor", *arguments, code=code)
        assert said in ran.stderr, ran.stderr
        # Where nothing listens a line before it says that it is tried for a while.
        assert [line for line in ran.stderr.splitlines() if "; trying for another" not in line] == [
            ran.stderr.splitlines()[-1]
        ]
        assert not ran.stdout
