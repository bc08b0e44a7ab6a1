"""Retry topics on a real Kafka: each delay is waited for, the last topic is followed by the dead letter, and nothing of
what waits is lost when its member is killed, or others join."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # not in its __all__

from holdfast import Holdfast, Retry
from holdfast.adapters.kafka import KafkaSource
from holdfast.adapters.kafka.admin import Admin
from holdfast.adapters.kafka.topic_keeping import keeping_of
from holdfast.errors import NotAuthorised, TopicUnfit, UnknownTopic
from holdfast.timing import Deadline
from tests.harness.forks import fork
from tests.harness.group.config import KAFKA
from tests.harness.kafka_brokers import all_of
from tests.harness.processes import end
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.harness.forks import Forked
    from tests.harness.servers.kafka import KafkaServer

SESSION = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range", **SESSION},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky", **SESSION},
    "consumer": {"group.protocol": "consumer"},
}


class Call(NamedTuple):
    value: str
    topic: str
    waited_ms: int
    how: str


class Group:
    """Members, each a process, and what their handlers were called with."""

    def __init__(self, kafka: KafkaServer, redis_url: str, home: Path, protocol: str, delays: list[str]) -> None:
        name = uuid.uuid4().hex[:8]
        self.kafka, self.topic, self.group = kafka, f"orders-{name}", f"group-{name}"
        self.ledger = home / "ledger.tsv"
        self.ledger.touch()
        self.retries = [f"{self.topic}.{self.group}.retry.{delay}" for delay in delays]
        self.letters = f"{self.topic}.dlq"
        for topic in (self.topic, *self.retries):
            kafka.create_topic(topic, 3)
        kafka.create_topic(self.letters, 1)
        if protocol == "consumer":
            kafka.set_session(self.group, 6000)
        self._told = json.dumps(
            {
                "bootstrap": kafka.bootstrap, "redis_url": redis_url, "topic": self.topic, "group": self.group,
                "delays": delays, "ledger": str(self.ledger), "protocol": PROTOCOLS[protocol],
            }
        )  # fmt: skip
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self) -> Forked:
        member = fork("tests.contracts.kafka.retrying_member", self._told, out=1, err=2)
        self._stack.callback(end, member, 0.0)
        return member

    def produce(self, *values: str) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        for value in values:
            producer.produce(self.topic, value, key=value)
        assert producer.flush(PATIENCE_S) == 0

    def calls(self) -> list[Call]:
        lines = self.ledger.read_text().splitlines()
        return [Call(value, topic, int(ms), how) for value, topic, ms, how in (line.split("\t") for line in lines)]

    def wait_called(self, topic: str, count: int) -> None:
        """So many values have been handed to a handler by that topic."""
        until(
            lambda: len({call.value for call in self.calls() if call.topic == topic}) >= count,
            lambda: f"{topic} has brought {Counter((call.topic, call.how) for call in self.calls())}",
        )

    def wait_committed(self) -> None:
        """The group's offsets are at the end of each log."""

        def behind() -> list[str]:
            found = []
            for topic in (self.topic, *self.retries):
                committed = self.kafka.committed(self.group, topic)
                ends = self.kafka.end_offsets(topic)
                found += [f"{topic}-{each}" for each, end in ends.items() if end and committed.get(each) != end]
            return found

        until(lambda: not behind(), lambda: f"not committed: {behind()}")


@pytest.fixture
def group(kafka: KafkaServer, redis_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Group]:
    with Group(kafka, redis_url, tmp_path, getattr(request, "param", "cooperative"), ["500ms", "1s"]) as made:
        yield made


def test_a_record_that_fails_comes_again_after_each_delay_and_then_is_a_dead_letter(group: Group) -> None:
    member = group.start()
    group.produce("cured", "never")
    group.wait_called(group.retries[1], 2)
    [letter] = all_of(group.kafka.bootstrap, group.letters, 1)
    group.wait_committed()
    end(member, PATIENCE_S)
    assert member.returncode == 0
    first, second = group.retries
    calls = group.calls()
    assert [call.topic for call in calls if call.value == "never"] == [group.topic, first, second]
    assert [call.how for call in calls if call.value == "cured"] == ["failed", "failed", "done"]
    delays = {first: 500, second: 1000}
    assert all(call.waited_ms >= delays.get(call.topic, 0) for call in calls)
    said = dict(letter.headers() or ())
    assert (letter.key(), letter.value(), said["holdfast-attempts"]) == (b"never", b"never", b"3")
    assert said["holdfast-origin-topic"] == group.topic.encode()
    [before] = [each for each in all_of(group.kafka.bootstrap, first, 2) if each.value() == b"never"]
    assert dict(before.headers() or ())["holdfast-attempts"] == b"1"


@pytest.mark.full
@pytest.mark.parametrize("group", KAFKA, indirect=True)
def test_a_kill_and_a_join_while_records_wait_lose_nothing(group: Group) -> None:
    values = [f"v{number}" for number in range(60)]
    first = group.start()
    group.produce(*values)
    group.wait_called(group.topic, len(values))
    second = group.start()  # a rebalance, while all of them wait
    group.wait_called(group.retries[0], 10)
    first.kill()
    first.wait()
    third = group.start()
    group.wait_called(group.retries[1], len(values))
    group.wait_committed()
    for member in (second, third):
        end(member, PATIENCE_S)
        assert member.returncode == 0
    assert {call.value for call in group.calls() if call.how == "done"} == set(values)
    delays = dict(zip(group.retries, (500, 1000), strict=True))
    assert all(call.waited_ms >= delays.get(call.topic, 0) for call in group.calls())


def test_a_missing_retry_topic_is_told_at_the_start_with_all_names_and_the_command(kafka: KafkaServer) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 1)
    app = Holdfast(KafkaSource({"bootstrap.servers": kafka.bootstrap, "group.id": "billing"}), claims=None)
    app.handler(topic, retry=Retry(topics=["10s", "1min"]))(print)
    with pytest.raises(UnknownTopic, match=rf"{topic}\.billing\.retry\.10s, {topic}\.billing\.retry\.1min.*--create"):
        app.run()


class Parked(NamedTuple):
    """An app whose first record fails, and the topics where it would go."""

    app: Holdfast
    retry: str
    letters: str


@pytest.fixture
def parked(kafka: KafkaServer) -> Callable[..., Parked]:
    def make(retries: dict[str, str] | None = None, letters: dict[str, str] | None = None) -> Parked:
        topic = f"orders-{uuid.uuid4().hex[:8]}"
        made = Parked(
            Holdfast(KafkaSource({"bootstrap.servers": kafka.bootstrap, "group.id": "billing"}), claims=None),
            f"{topic}.billing.retry.10s",
            f"{topic}.dlq",
        )
        kafka.create_topic(topic, 1)
        kafka.create_topic(made.retry, 1, retries)
        kafka.create_topic(made.letters, 1, letters)
        made.app.handler(topic, retry=Retry(topics=["10s"]), dead_letter=made.letters)(print)
        # Beside what it says before: it gets as far as the user's own resources, and then ends by itself.
        made.app.on_startup(made.app.stop)
        return made

    return make


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"cleanup.policy": "compact"},
            "has cleanup.policy=compact: compaction deletes all but the last record of a key",
        ),
        ({"cleanup.policy": "compact,delete"}, "has cleanup.policy=compact"),
        ({"retention.ms": "9000"}, "has retention.ms=9000: records wait there for 10s, and may be deleted"),
    ],
)
def test_a_retry_topic_that_loses_what_waits_in_it_keeps_the_app_from_starting(
    parked: Callable[..., Parked], settings: dict[str, str], said: str
) -> None:
    made = parked(settings)
    with pytest.raises(TopicUnfit, match=rf"{made.retry} {said}.*kafka-configs.sh .*--entity-name {made.retry}"):
        made.app.run()


def test_what_only_may_lose_records_is_logged_and_the_app_starts(
    parked: Callable[..., Parked], caplog: pytest.LogCaptureFixture
) -> None:
    made = parked({"retention.ms": "60000", "retention.bytes": "1000000"}, {"cleanup.policy": "compact"})
    made.app.run()
    for said in (
        f"{made.retry} has retention.ms=60000: records wait there for 10s, and are deleted if no member runs for 50 s",
        f"{made.retry} has retention.bytes=1000000: when more records fail than fit",
        f"{made.letters} has cleanup.policy=compact: of the dead letters of one key only the last one stays",
    ):
        assert said in caplog.text


def test_a_broker_that_does_not_tell_this_user_is_told_once(
    parked: Callable[..., Parked], kafka: KafkaServer, caplog: pytest.LogCaptureFixture
) -> None:
    made = parked({"cleanup.policy": "compact"})
    kafka.forbid("topic", made.retry, AclOperation.DESCRIBE_CONFIGS)
    until(lambda: not told(kafka, made.retry), lambda: "the broker still tells")
    made.app.run()
    [line] = [each for each in caplog.messages if "DESCRIBE_CONFIGS" in each]
    assert line.startswith(f"could not check whether {made.retry} keep their records")


def told(kafka: KafkaServer, topic: str) -> bool:
    [found] = keeping_of(Admin({"bootstrap.servers": kafka.bootstrap}), [topic], Deadline(PATIENCE_S)).values()
    return not isinstance(found, NotAuthorised)
