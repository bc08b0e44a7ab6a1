"""The command line's tools on a real RocketMQ and a real Redis, as a user runs them."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from holdfast import RedisClaims, RedisCoordinator, Retry, Unretriable
from holdfast.adapters.rocketmq.names import leased_record, push_record
from holdfast.adapters.rocketmq.remoting import Consumer, RemotingClient, Subscription
from holdfast.dedup.groups import Member
from holdfast.plugin.assign import strategy_of
from holdfast.timing import Deadline
from tests.cli.bench import holdfast, lay_out, lines
from tests.harness.rocketmq_field import Field
from tests.harness.rocketmq_topics import messages_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from holdfast import Record
    from tests.harness.servers.rocketmq import RocketMQServer

TEN = [f"order-{number}" for number in range(10)]


@pytest.fixture
def field(rocketmq: RocketMQServer, redis_url: str) -> Iterator[Field]:
    """A group and a topic of two queues, with ten orders."""
    with Field(rocketmq, redis_url, queues=2) as made:
        made.produce(*TEN)
        yield made


def reset(field: Field, *more: str, code: int | Sequence[int] = 0) -> str:
    ran = holdfast(
        *("reset", "--group", field.group, "--topic", field.topic),
        *("--namesrv", field.server.namesrv, "--redis", field.url, *more),
        code=code,
    )
    return ran.stdout + ran.stderr


def handle_all(field: Field, *values: str) -> None:
    app = field.app()
    field.wait_handled(*values)
    field.wait_committed()
    app.stop()


def test_a_reset_to_the_start_runs_everything_again_once(field: Field) -> None:
    handle_all(field, *TEN)
    told = reset(field, "--to", "earliest", "--yes")
    assert "at most 10 records would run again and 0 be skipped" in told
    assert "10 messages known as done by their UNIQ_KEY are forgotten" in told
    field.app()
    field.wait(lambda: len(field.handled) == 20)
    field.wait_committed()
    assert Counter(field.values()) == Counter(TEN * 2)


def test_a_reset_moves_the_queues_and_the_records_that_are_named_and_no_others(field: Field) -> None:
    handle_all(field, *TEN)
    reset(field, "--to", "-2", "--partitions", "1", "--yes")
    field.app()
    field.wait(lambda: len(field.handled) == 12)
    field.wait_committed()
    assert [(queue.number, offset) for _, queue, offset in field.handled[10:]] == [(1, 3), (1, 4)]


def test_a_reset_to_the_end_skips_what_was_not_handled(field: Field) -> None:
    lay_out(field.url)
    assert "0 records would run again" in reset(field, "--to", "latest", "--yes", "--new")
    field.app()
    field.produce("new-1", "new-2")
    field.wait_committed()
    assert sorted(field.values()) == ["new-1", "new-2"]


def test_a_dry_run_and_a_missing_yes_change_nothing(field: Field) -> None:
    handle_all(field, *TEN)
    before = field.committed()
    assert "10 records would run again" in reset(field, "--to", "earliest", "--dry-run")
    assert "say --yes" in reset(field, "--to", "earliest", code=1)
    assert field.committed() == before
    field.produce("new")
    handle_all(field, "new")
    assert sorted(field.values()) == sorted([*TEN, "new"])


def test_a_reset_is_refused_while_members_live_whoever_knows_of_them(field: Field) -> None:
    app = field.app()
    field.wait_handled(*TEN)
    assert "has 2 members" in reset(field, "--to", "earliest", "--yes", code=1)  # by the broker and by Redis
    app.stop()
    consumer = Consumer(group=field.group, subscriptions=(Subscription(topic=field.topic),))
    with RemotingClient(field.server.namesrv, client_id="till@1#java") as other:
        other.route(field.topic, Deadline(10))
        assert other.heartbeat([consumer], Deadline(10)) == {}
        told = reset(field, "--to", "earliest", "--yes", code=1)
        assert "has 1 member: till@1#java at 127.0.0.1:" in told
        other.unregister(field.group, Deadline(10))
    with closing(RedisClaims.from_url(field.url)) as store:
        silent = Member(client_id="till@2", subscription="*")
        strategy = strategy_of("sticky")
        # Members of each of our sources, also of those of which no broker knows.
        for record in (field.group, leased_record(field.group, field.topic), push_record(field.group)):
            here = RedisCoordinator(store).join(
                record, silent, Deadline(10), strategy=strategy, wake=lambda: None, queues=field.queues()
            )
            assert "till@2 at the coordinator in Redis" in reset(field, "--to", "earliest", "--yes", code=1)
            here.leave(Deadline(10))
    reset(field, "--to", "earliest", "--yes")


def test_letters_of_the_group_are_listed_go_back_once_and_are_handled(field: Field) -> None:
    declined = set(TEN[2:5])

    def bill(record: Record) -> None:
        value = (record.value or b"").decode()
        if value in declined:
            raise Unretriable(f"no money for {value}")
        field._handle("till", record)

    letters = f"%DLQ%{field.group}"
    with_letters = {"dead_letter": "%DLQ%", "retry": Retry(attempts=2)}
    app = field.app(handler=bill, handling=with_letters)
    field.wait_committed()
    app.stop()
    assert len(messages_of(field.server.namesrv, letters, 3)) == 3
    where = ("--topic", letters, "--namesrv", field.server.namesrv)
    *found, summary = lines(holdfast("dead-letters", "list", *where, "--json", "--values"))
    assert {each["value"]["text"] for each in found} == declined
    assert {(each["origin_topic"], each["origin_broker"], each["error_type"]) for each in found} == {
        (field.topic, "broker-a", "holdfast.errors.Unretriable")
    }
    assert summary["letters"] == 3
    assert f"{field.topic}-broker-a-" in holdfast("dead-letters", "list", *where).stdout
    replay = ("dead-letters", "replay", *where, "--origin", field.topic, "--redis", field.url, "--json")
    assert [lines(holdfast(*replay, *more))[0]["sent"] for more in (["--dry-run"], ["--limit", 2], [], [])] == [
        {field.topic: 3},
        {field.topic: 2},
        {field.topic: 1},
        {},
    ]
    born = {(each["value"]["text"], each["origin_partition"]) for each in found}
    declined.clear()
    field.app(handler=bill, handling=with_letters)
    field.wait_handled(*TEN)
    field.wait_committed()
    assert Counter(field.values()) == Counter(TEN)
    again = {((each.value or b"").decode(), each.partition.number) for each in field.records[7:]}
    assert again == born, "each in the queue where it was born"


def test_letters_that_the_broker_itself_has_written_go_back_to_their_topic(field: Field) -> None:
    lay_out(field.url)
    letters = f"%DLQ%{field.group}"
    field.admin.create_group(field.group, Deadline(10))
    [first, *_] = messages_of(field.server.namesrv, field.topic, 10)
    field.sender.send_back("broker-a", field.group, first, Deadline(10), delay_level=-1)
    deadline = Deadline(30)
    where = ("--topic", letters, "--namesrv", field.server.namesrv, "--json")
    while "UnknownTopic" in (said := holdfast("dead-letters", "list", *where, code=(0, 1)).stderr):
        assert not deadline.passed, said
    [letter, _] = lines(holdfast("dead-letters", "list", *where))
    assert (letter["origin_topic"], letter["handler"]) == (field.topic, None)
    [result] = lines(holdfast("dead-letters", "replay", *where, "--origin", field.topic, "--redis", field.url))
    assert result["sent"] == {field.topic: 1}
    assert len(messages_of(field.server.namesrv, field.topic, 11)) == 11


def test_what_cannot_work_is_said_in_one_sentence(rocketmq: RocketMQServer, redis_url: str, tmp_path: Path) -> None:
    lay_out(redis_url)
    ask = ("dead-letters", "list", "--topic", "orders")
    wrong = tmp_path / "wrong"
    secret = tmp_path / "secret"
    wrong.write_text("namesrv=127.0.0.1:1\nno_such=hush\n")
    secret.write_text("namesrv=127.0.0.1:1\naccess_key=me\nsecret_key=hush\n")
    for more, code, sentence in (
        ((), 2, "give host:port of a Kafka broker, or --namesrv"),
        (("--bootstrap", "x:1", "--namesrv", "x:1"), 2, "give one of the two"),
        (("--namesrv", "nowhere"), 2, "host:port is wanted"),
        (("--rocketmq-config", wrong), 2, "no_such is not a known name"),
        (("--rocketmq-config", secret, "--timeout", "0.5"), 3, "127.0.0.1:1"),
        (("--namesrv", "127.0.0.1:1", "--timeout", "0.5"), 3, "127.0.0.1:1"),
        (("--namesrv", rocketmq.namesrv), 1, "create the topic"),
    ):
        said = holdfast(*ask, *more, code=code).stderr
        assert sentence in said
        assert "hush" not in said
        assert len([line for line in said.splitlines() if "; trying for another" not in line]) == 1
