"""`holdfast migrate` as a user runs it, on a group that lives meanwhile."""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer

from holdfast.adapters.cli import main
from holdfast.timing import Deadline
from tests.cli.bench import holdfast, lines
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.servers.kafka import KafkaServer


@contextmanager
def living_group(kafka: KafkaServer, *, static: bool) -> Iterator[str]:
    """Two members with the range strategy, three partitions each."""
    name = f"range-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, 6)
    conf = {"bootstrap.servers": kafka.bootstrap, "group.id": name, "heartbeat.interval.ms": 200, "log_level": 0}
    members = []
    for till in ("till-1", "till-2"):
        own = {"client.id": till} | ({"group.instance.id": till} if static else {})
        members.append(Consumer({**conf, **own, "partition.assignment.strategy": "range"}))
        members[-1].subscribe([name])
    ends, over = Deadline(PATIENCE_S), threading.Event()
    while [len(each.assignment()) for each in members] != [3, 3]:
        assert not ends.passed
        for each in members:
            each.poll(0.02)

    def polls() -> None:
        while not over.is_set():
            for each in members:
                each.poll(0.05)

    thread = threading.Thread(target=polls)
    thread.start()
    try:
        yield name
    finally:
        over.set()
        thread.join()
        for each in members:
            each.close()


def test_a_live_group_is_looked_at_and_each_restart_told(kafka: KafkaServer) -> None:
    with living_group(kafka, static=False) as group:
        told = holdfast("migrate", "--group", group, "--bootstrap", kafka.bootstrap).stdout
        found = lines(holdfast("migrate", "--group", group, "--bootstrap", kafka.bootstrap, "--json", "--to",
                               "cooperative", "--client", "java"))  # fmt: skip
    assert told.startswith(f"{group}: 2 members, 0 of them static, 6 partitions, range\n")
    assert "group.protocol=consumer" in told.splitlines()
    # The first one's three go to the other, which holds up its own three: they are eager. Then three come back.
    assert [line.split() for line in told.splitlines() if line.startswith("till-")] == [
        ["till-1", "3", "3", "6"],
        ["till-2", "3", "3", "0"],
    ]
    [about, *steps, notes] = found
    assert (about["type"], about["members"], about["assignor"], about["goal"]) == ("group", 2, "range", "cooperative")
    assert [step["number"] for step in steps] == [1, 2]
    assert [len(step["restarts"]) for step in steps] == [2, 2]
    assert notes["type"] == "notes"


def test_restarts_of_static_members_are_heard_of_by_nobody(kafka: KafkaServer) -> None:
    with living_group(kafka, static=True) as group:
        told = holdfast("migrate", "--group", group, "--bootstrap", kafka.bootstrap).stdout
    assert [line.split() for line in told.splitlines() if line.startswith("till-")] == [
        ["till-1", "none", "none", "0"],
        ["till-2", "none", "none", "0"],
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kafka", "3.9"), "stop all members"),
        (("--kafka", "3.9", "--client", "java"), "step 2 of 2"),
        (("--kafka", "4.1"), "step 1 of 1"),
        (("--kafka", "4.1", "--assignor", "uniform"), "The group already uses the consumer protocol."),
    ],
)
def test_the_steps_are_told_without_a_group_too(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["migrate", *arguments]) == 0
    assert said in capsys.readouterr().out


def test_a_group_may_be_described(capsys: pytest.CaptureFixture[str]) -> None:
    way = ["migrate", "--kafka", "4.1", "--topics", "orders=8,payments=4", "--members", "3"]

    def moves() -> list[list[str]]:
        return [line.split()[1:] for line in capsys.readouterr().out.splitlines() if line.startswith("member-")]

    assert main(way) == 0
    assert all(int(away) >= 3 and int(back) >= 3 for away, back, _ in moves())
    assert main([*way, "--static"]) == 0
    assert moves() == [["none", "none", "0"]] * 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--bootstrap"),
        (("--kafka", "3.9", "--members", "3"), "give --topics and --members"),
        (("--group", "g", "--bootstrap", "x:1", "--members", "3"), "they describe another group"),
        (("--kafka", "3.9", "--to", "consumer"), "came with 4.0"),
        (("--kafka", "3.9", "--assignor", "mine"), "cannot be predicted"),
        (("--kafka", "3.9", "--group", "g"), "name the group, or"),
        (("--namesrv", "x:1", "--group", "g"), "examples/rocketmq_move"),
        (("--kafka", "4.1", "--assignor", "uniform", "--to", "cooperative"), "nothing to do"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["migrate", *arguments]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert len(told.splitlines()) == 1


def test_a_group_that_does_not_exist_is_said_to_be_none(kafka: KafkaServer) -> None:
    told = holdfast("migrate", "--group", "nobody", "--bootstrap", kafka.bootstrap, code=1).stderr
    assert "nobody" in told
    assert "no answer yet" in told or len(told.splitlines()) == 1  # a busy machine may be waited for
