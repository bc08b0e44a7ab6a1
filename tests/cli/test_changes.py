"""What every command that changes something promises, whoever reads its output and however it is interrupted: it is
done and ends with 0, or it is not and says so."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from holdfast import RedisClaims
from holdfast.adapters.cli.replayed import NAMESPACE, names_of
from holdfast.adapters.kafka.tools.dead_letters import KafkaDeadLetterTool
from holdfast.adapters.kafka.tools.offsets import KafkaOffsetTool
from holdfast.dedup.claims import Claim, ClaimKey, Token
from holdfast.dedup.redis_admin import KeyState, RedisAdmin
from holdfast.timing import Deadline
from tests.cli.bench import holdfast, lay_out, lines
from tests.harness import forks
from tests.harness.servers.redis import RedisServer
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.harness.servers.kafka import KafkaServer

SCOPE = "billing/orders"


def cut(after: int, *arguments: object) -> int:
    """Run the command; whoever reads what it says goes away after so many lines. Returns: its exit code."""
    reads, writes = os.pipe()
    fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 4096)  # so that it cannot have said all before
    process = forks.fork("holdfast", *map(str, arguments), out=writes, err=writes)
    os.close(writes)
    with os.fdopen(reads, "rb", buffering=0) as said:
        for _ in range(after):
            said.readline()
    return process.wait(PATIENCE_S)


class Group:
    """A group that has read a topic to its end, in the hands of nobody."""

    def __init__(self, kafka: KafkaServer, redis_url: str, partitions: int = 3) -> None:
        lay_out(redis_url)
        self.kafka, self.topic, self.group = kafka, f"t-{uuid.uuid4().hex[:8]}", f"g-{uuid.uuid4().hex[:8]}"
        self.dlq = f"{self.topic}.dlq"
        kafka.create_topic(self.topic, partitions)
        kafka.create_topic(self.dlq, 1)
        self.where = ("--bootstrap", kafka.bootstrap, "--redis", redis_url)
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        for number in range(partitions):
            producer.produce(self.topic, b"x", partition=number)
        assert producer.flush(20) == 0

    def set(self, offset: int, *topics: str) -> None:
        with contextlib.closing(KafkaOffsetTool({"bootstrap.servers": self.kafka.bootstrap}, self.group)) as tool:
            for topic in topics or (self.topic,):
                tool.set(dict.fromkeys(tool.partitions(topic, Deadline(20)), offset), Deadline(20))

    def committed(self) -> Mapping[int, int]:
        return self.kafka.committed(self.group, self.topic)

    def letters(self, count: int, **headers: str) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
        own = {"holdfast-origin-topic": self.topic, "holdfast-group": self.group, **headers}
        for number in range(count):
            producer.produce(self.dlq, str(number), key=b"k", headers=list(own.items()))
        assert producer.flush(20) == 0

    def sent(self, topic: str | None = None) -> int:
        return sum(self.kafka.end_offsets(topic or self.topic).values())


@pytest.fixture
def group(kafka: KafkaServer, redis_url: str) -> Group:
    return Group(kafka, redis_url)


def test_a_reset_whose_reader_goes_away_is_done_after_whatever_line(group: Group) -> None:
    for after, form in ((0, ()), (1, ("--json",)), (4, ()), (4, ("--json",))):  # a table has 5 lines before the change
        group.set(1)
        command = ("reset", "--group", group.group, "--topic", group.topic, "--to", "earliest", "--yes")
        assert cut(after, *command, *form, *group.where) == 0
        assert set(group.committed().values()) == {0}


def test_keys_are_forgotten_whoever_reads(redis_url: str) -> None:
    keys = [str(number) for number in range(1_500)]
    with contextlib.closing(RedisClaims.from_url(redis_url)) as store:
        for after in (0, 1, 700):
            session = store.begin(60.0)
            claims = [Claim(ClaimKey(SCOPE, f"s:{key}"), Token("p", 0, 1)) for key in keys]
            session.claim(claims)
            session.finish(claims)
            session.end()
            command = ("claims", "forget", *keys, "--redis", redis_url, "--scope", SCOPE, "--json")
            assert cut(after, *command) == 0
            shown = RedisAdmin.of(store).show([each.key for each in claims])
            assert {each.state for each in shown} == {KeyState.ABSENT}


def test_a_replay_whose_reader_goes_away_sends_all(group: Group) -> None:
    for after in (0, 1):
        group.letters(250)
        before = group.sent()
        command = ("dead-letters", "replay", "--topic", group.dlq, "--origin", group.topic, *group.where)
        assert cut(after, *command) == 0
        assert group.sent() - before == 250


def test_a_plan_that_cannot_be_read_is_not_asked_about(group: Group) -> None:
    group.set(1)
    assert cut(0, "reset", "--group", group.group, "--topic", group.topic, "--to", "earliest", *group.where) == 1
    assert set(group.committed().values()) == {1}


def test_what_only_looks_ends_with_its_reader(group: Group) -> None:
    group.set(1)
    assert cut(0, "lag", "--group", group.group, "--bootstrap", group.kafka.bootstrap) == 0


# ---- where it goes on from
def reset(group: Group, *more: object, code: int = 0) -> list[dict[str, Any]]:
    command = ("reset", "--group", group.group, "--topic", group.topic, "--yes", "--json", *group.where)
    return lines(holdfast(*command, *more, code=code))


def test_a_group_or_topic_that_nobody_knows_is_refused_unless_it_is_said_to_be_new(group: Group) -> None:
    [told] = reset(group, "--to", "earliest", code=1)
    assert (told["type"], told["done"], told["offsets"]) == ("reset", False, "unchanged")
    assert "--new" in told["error"]
    assert group.committed() == {}
    assert reset(group, "--to", "earliest", "--new")[-1]["done"]
    assert set(group.committed().values()) == {0}


def test_what_lies_beyond_the_log_is_refused_and_nothing_is_set(group: Group) -> None:
    group.set(1)
    for to in ("20261127", "1795781909587", "+1", "2999-01-01T00:00:00Z"):
        [told] = reset(group, "--to", to, code=2)
        assert not told["done"]
    assert set(group.committed().values()) == {1}


def test_retry_topics_of_the_group_are_named_with_what_waits_there(group: Group) -> None:
    retry = f"{group.topic}.{group.group}.retry.10s"
    group.kafka.create_topic(retry, 1)
    group.kafka.create_topic(f"{group.topic}.other.retry.10s", 1)
    producer = Producer({"bootstrap.servers": group.kafka.bootstrap, "log_level": 0})
    for _ in range(3):
        producer.produce(retry, b"x")
    assert producer.flush(20) == 0
    group.set(1, group.topic, retry)
    told = reset(group, "--to", "earliest")
    assert [each for each in told if each["type"] == "retry_topic"] == [
        {"type": "retry_topic", "topic": retry, "lag": 2}
    ]


def test_a_group_without_a_store_is_reset_and_its_letters_go_back(group: Group) -> None:
    group.set(1)
    where = ("--bootstrap", group.kafka.bootstrap, "--no-store")
    holdfast("reset", "--group", group.group, "--topic", group.topic, "--to", "earliest", "--yes", *where)
    assert set(group.committed().values()) == {0}
    group.letters(2)
    replay = ("dead-letters", "replay", "--topic", group.dlq, "--origin", group.topic, *where)
    assert "say --yes" in holdfast(*replay, code=1).stderr
    assert "2 letters sent" in holdfast(*replay, "--yes").stdout
    assert "--no-store" in holdfast(*replay[:-1], code=2).stderr


def test_a_store_that_goes_away_leaves_a_last_line_that_says_so(group: Group) -> None:
    with RedisServer() as server:
        lay_out(server.url)
        group.where = ("--bootstrap", group.kafka.bootstrap, "--redis", server.url)
        group.set(1)
        server.pause()
        told = reset(group, "--to", "earliest", "--timeout", "1", code=3)
        assert (told[-1]["type"], told[-1]["done"], bool(told[-1]["error"])) == ("reset", False, True)
        keys = holdfast("claims", "forget", "1", "--redis", server.url, "--scope", "s", "--json", code=3)
        assert lines(keys)[-1]["type"] == "forget"
        server.resume()


# ---- replay
def replay(group: Group, *more: object, code: int = 0) -> dict[str, Any]:
    command = ("dead-letters", "replay", "--topic", group.dlq, "--json", *group.where, *more)
    return lines(holdfast(*command, code=code))[-1]


def test_letters_that_were_tried_elsewhere_still_go_to_where_they_were_born_once(group: Group) -> None:
    group.letters(5)
    other = f"{group.topic}.try"
    group.kafka.create_topic(other, 1)
    born = group.sent()
    assert replay(group, "--to", other)["sent"] == {other: 5}
    assert replay(group, "--origin", group.topic)["sent"] == {group.topic: 5}
    assert replay(group, "--to", other)["sent"] == {}
    assert replay(group, "--to", group.topic)["sent"] == {}
    assert (group.sent(other), group.sent() - born) == (5, 5)


def test_what_was_replayed_is_known_to_all_who_share_the_topic(group: Group, redis_url: str) -> None:
    with contextlib.closing(RedisClaims.from_url(redis_url, namespace="another")) as store:
        store.connect()
    group.letters(5)
    assert replay(group, "--origin", group.topic)["sent"] == {group.topic: 5}
    assert replay(group, "--origin", group.topic, "--namespace", "another")["sent"] == {}


def test_letters_of_two_topics_go_back_each_by_itself(group: Group) -> None:
    second = f"{group.topic}.second"
    group.kafka.create_topic(second, 1)
    for _ in range(3):
        group.letters(2)
        group.letters(1, **{"holdfast-origin-topic": second})
    assert replay(group, "--origin", second)["sent"] == {second: 3}
    assert replay(group, "--origin", second, "--origin", group.topic)["sent"] == {group.topic: 6}
    pending = ("dead-letters", "list", "--topic", group.dlq, "--pending", "--json", *group.where)
    assert lines(holdfast(*pending))[-1]["letters"] == 0


def test_a_record_that_fitted_goes_back_though_its_letter_does_not(group: Group) -> None:
    narrow = f"{group.topic}.narrow"
    group.kafka.create_topic(narrow, 1, {"max.message.bytes": "100000"})
    producer = Producer({"bootstrap.servers": group.kafka.bootstrap, "log_level": 0})
    headers: dict[str, str | bytes | None] = {"holdfast-origin-topic": narrow, "holdfast-traceback": os.urandom(4_000)}
    producer.produce(group.dlq, os.urandom(99_000), headers=headers)
    assert producer.flush(20) == 0
    told = replay(group, "--origin", narrow)
    assert (told["sent"], told["refused"]) == ({narrow: 1}, {})


def test_a_compacted_target_and_other_groups_of_it_are_said_before_anything_is_sent(group: Group) -> None:
    compacted = f"{group.topic}.compacted"
    group.kafka.create_topic(compacted, 1, {"cleanup.policy": "compact"})
    group.letters(2, **{"holdfast-origin-topic": compacted})
    group.set(0, compacted)
    command = ("dead-letters", "replay", "--topic", group.dlq, "--origin", compacted, *group.where)
    told = holdfast(*command, code=1)
    assert "is compacted" in told.stdout
    assert "other groups" not in told.stdout  # the letters' own group
    group.group = f"audit-{uuid.uuid4().hex[:8]}"
    group.set(0, compacted)
    told = holdfast(*command, code=1)
    assert f"is read by other groups too, which get the letters again: {group.group}" in told.stdout
    assert "say --yes" in told.stderr
    assert group.sent(compacted) == 0
    assert "2 letters would be sent" in holdfast(*command, "--dry-run").stdout
    assert "2 letters sent" in holdfast(*command, "--yes").stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_replay_that_waits_for_another_one_ends_at_once_when_it_is_interrupted(
    group: Group, redis_url: str, number: signal.Signals
) -> None:
    group.letters(1)
    with contextlib.closing(KafkaDeadLetterTool({"bootstrap.servers": group.kafka.bootstrap})) as tool:
        names = tool.position_names(tool.partitions(group.dlq, Deadline(20)), Deadline(20))
    with contextlib.closing(RedisClaims.from_url(redis_url, namespace=NAMESPACE)) as store:
        session = store.begin(3600.0)
        session.acquire(list(names_of(names, [group.topic]).values()))
        reads, writes = os.pipe()
        command = ("dead-letters", "replay", "--topic", group.dlq, "--origin", group.topic, *group.where)
        process = forks.fork("holdfast", *command, out=writes, err=writes)
        os.close(writes)
        said = bytearray()

        def listen() -> None:
            with os.fdopen(reads, "rb", buffering=0) as told:
                while part := told.read(1000):
                    said.extend(part)

        listening = threading.Thread(target=listen)
        listening.start()
        until(lambda: b"waiting for the process" in said, lambda: said)
        process.send_signal(number)
        assert process.wait(PATIENCE_S / 2) == 130  # far below its own patience
        listening.join()
        assert b"stopped before the end (interrupted)" in said
        session.end()
