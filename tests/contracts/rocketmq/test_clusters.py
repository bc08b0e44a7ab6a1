"""RocketMQSource and what goes with it on two brokers that speak TLS alone and know who may what; one gets a slave."""

from __future__ import annotations

import json
import re
import shlex
import ssl
import threading
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Retry, Settings, Unretriable
from holdfast.adapters.rocketmq import RocketMQProducer
from holdfast.adapters.rocketmq.remoting import Credentials, NotTrusted, Subscription, queues
from holdfast.errors import NotAuthorised, SourceError, SourceUnavailable
from holdfast.plugin.events import LogWentBack, ResetHonoured, SourceTrouble
from holdfast.timing import Deadline
from tests.cli.bench import holdfast, lines
from tests.contracts.rocketmq.cluster import PASSWORD, USER
from tests.harness.kafka_brokers import closed_port
from tests.harness.rocketmq_field import PATIENCE_S, Field, numbered
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from holdfast import Record
    from holdfast.records import Partition
    from tests.contracts.rocketmq.cluster import Cluster
    from tests.harness.rocketmq_field import App

pytestmark = pytest.mark.full

__all__ = ["closed_port"]

_ROOT = Path(__file__).parents[3]
BROKERS = ["broker-a", "broker-b"]
HUSH = "correct-horse-too"
_names = count()


@pytest.fixture
def field(cluster: Cluster, redis_url: str) -> Iterator[Field]:
    """A topic of two queues on each broker."""
    with Field(cluster.server, redis_url, queues=2, login=cluster.login) as made:
        yield made


def deadline() -> Deadline:
    return Deadline(PATIENCE_S)


def user(field: Field, may: dict[str, list[str]]) -> dict[str, Any]:
    """The login of a new user that may do that: a resource such as "Topic:orders" to actions."""
    name = f"user-{time.time_ns()}-{next(_names)}"
    entries = [{"resource": each, "actions": actions, "decision": "Allow"} for each, actions in may.items()]
    made = {"username": name, "password": HUSH, "userType": "Normal", "userStatus": "enable"}
    allowed = {"subject": f"User:{name}", "policies": [{"policyType": "Custom", "entries": entries}]}
    for broker in {queue.broker for queue in field.queues()}:
        field.client.ask(broker, 3001, {"username": name}, deadline(), json.dumps(made).encode())
        if may:
            field.client.ask(broker, 3006, {"subject": f"User:{name}"}, deadline(), json.dumps(allowed).encode())
    return {"access_key": name, "secret_key": HUSH}


def _until(reached: Callable[[], object]) -> None:
    """Until it is true; servers that are away may come back meanwhile."""
    until(reached, despite=(SourceError,))


def _owned(queues: Collection[Partition], broker: str) -> int:
    return sum(queue.broker == broker for queue in queues)


def _of_a(names: Iterable[str]) -> set[str]:
    return {each for each in names if each.startswith("broker-a")}


def _has(field: Field, address: str, messages: int) -> bool:
    """Whether a slave has so many in each queue, and knows what it needs to hand them out."""
    for queue in field.queues():
        asked = queues.PullRequest(
            queue=queue, group=field.group, offset=0, subscription=Subscription(topic=queue.topic), suspend_s=0
        )
        answer = field.client.network.ask(address, queues.pull(asked, of_master=False), deadline())
        if queues.read_pull(answer).max_offset < messages:
            return False
    return True


def enough(field: Field) -> dict[str, list[str]]:
    """What a RocketMQSource needs."""
    return {f"Topic:{field.topic}": ["Sub", "Get"], f"Group:{field.group}": ["Sub", "Get"]}


class TestAccess:
    def test_what_a_source_needs_is_sub_and_get_for_its_topics_and_its_group(self, field: Field) -> None:
        field.produce(*numbered("x", 8))
        app = field.app(retry="broker", **user(field, enough(field)))
        field.wait_handled(*numbered("x", 8))
        field.wait_committed()
        field.wait(lambda: len(app.source._queues) == 6, "the retry topic's queues are read too")
        app.stop()
        assert sorted(field.values()) == numbered("x", 8)

    def test_the_lines_of_the_reference_make_a_user_with_these_rights(self, field: Field, cluster: Cluster) -> None:
        page = (_ROOT / "docs/reference/rocketmq.md").read_text(encoding="utf-8")
        ours = {"DefaultCluster": "holdfast", "billing-app": f"app-{field.group}", "$PASSWORD": HUSH}
        for line in re.findall(r"^ +mqadmin (.+)", page, re.MULTILINE):
            for name, value in (*ours.items(), ("orders", field.topic), ("billing", field.group)):
                line = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", value, line)  # noqa: PLW2901 - name by name
            said = cluster.server.mqadmin(*shlex.split(line), access_key=USER, secret_key=PASSWORD)
            assert "success" in said, said
        names = numbered("x", 8)
        field.produce(*names)

        def bill(record: Record) -> None:
            field._handle("till", record)
            raise Unretriable("no money")

        login: dict[str, Any] = {"access_key": ours["billing-app"], "secret_key": HUSH}
        app = field.app(handler=bill, handling={"dead_letter": "%DLQ%"}, **login)
        field.wait_handled(*names)
        field.wait_committed()
        app.stop()
        assert sum(field.ends(f"%DLQ%{field.group}").values()) == 8

    @pytest.mark.parametrize("less", ["no topic", "no group", "topic: no Get", "group: no Get", "topic: no Sub"])
    def test_who_lacks_one_of_these_is_told_once_at_the_start(
        self, field: Field, less: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("holdfast.adapters.rocketmq.offsets._ACCESS_S", PATIENCE_S)  # of a busy machine's brokers
        may = enough(field)
        topic, group = may
        if less.startswith("no "):
            del may[topic if less == "no topic" else group]
        else:
            may[topic if less.startswith("topic") else group].remove(less[-3:])
        field.produce("x")
        app = field.app(**user(field, may))
        with pytest.raises(NotAuthorised, match=r"Sub and Get|permissions of the topic and the group") as refused:
            app.join()
        assert field.values() == []
        assert len([each for each in caplog.records if str(refused.value) in each.getMessage()]) == 1

    @pytest.mark.parametrize(
        ("access_key", "secret_key"), [(USER, HUSH), ("nobody", HUSH), (None, None)], ids=["secret", "user", "none"]
    )
    def test_wrong_credentials_are_told_once_at_the_start_and_never_shown(
        self, field: Field, access_key: str | None, secret_key: str | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("DEBUG")
        app = field.app(access_key=access_key, secret_key=secret_key, handling={"dead_letter": "%DLQ%"})
        with pytest.raises(NotAuthorised, match="check the credentials") as refused:
            app.join()
        assert len([each for each in caplog.records if str(refused.value) in each.getMessage()]) == 1
        shown = f"{refused.value} {caplog.text} {app.source!r} {app.app!r} {app.source._client!r}"
        assert HUSH not in shown
        assert access_key is None or access_key not in repr(app.source)

    def test_a_dead_letter_topic_that_may_not_be_made_is_told_at_the_start(self, field: Field) -> None:
        app = field.app(handling={"dead_letter": "%DLQ%"}, **user(field, enough(field)))
        with pytest.raises(NotAuthorised, match="%DLQ%"):
            app.join()

    def test_producer_dead_letters_and_the_command_line_log_in_too(
        self, field: Field, cluster: Cluster, tmp_path: Path
    ) -> None:
        names = numbered("x", 8)
        with RocketMQProducer(
            cluster.server.namesrv,
            credentials=Credentials(access_key=USER, secret_key=PASSWORD),
            tls=cluster.certificates.client(),
            timeout_s=PATIENCE_S,
        ) as producer:
            assert PASSWORD not in repr(producer)
            for each in names:
                producer.send(field.topic, each.encode())
        declined = {"x3"}

        def bill(record: Record) -> None:
            if (record.value or b"").decode() in declined:
                raise Unretriable("no money")
            field._handle("till", record)

        handling = {"dead_letter": "%DLQ%", "retry": Retry(attempts=1)}
        app = field.app(handler=bill, handling=handling)
        field.wait_committed()
        app.stop()
        config = tmp_path / "rocketmq"
        config.write_text(
            f"namesrv={cluster.server.namesrv}\naccess_key={USER}\nsecret_key={PASSWORD}\n"
            f"tls_ca_file={cluster.certificates.ca_file}\n"
        )
        where, redis = ("--rocketmq-config", config), ("--redis", field.url)
        letters = ("--topic", f"%DLQ%{field.group}")
        [letter, _] = lines(holdfast("dead-letters", "list", *letters, *where, "--json", "--values"))
        assert letter["value"]["text"] == "x3"
        [replayed] = lines(
            holdfast("dead-letters", "replay", *letters, "--origin", field.topic, *where, *redis, "--json")
        )
        assert replayed["sent"] == {field.topic: 1}
        declined.clear()
        group = ("reset", "--group", field.group, "--topic", field.topic, "--to", "earliest", "--yes")
        assert "records would run again" in holdfast(*group, *where, *redis).stdout
        field.app(handler=bill, handling=handling)
        field.wait(lambda: len(field.handled) == 16)
        field.wait_committed()
        assert Counter(field.values()) == Counter([*names, *names])  # the declined one and its letter too
        config.write_text(f"namesrv={cluster.server.namesrv}\naccess_key={USER}\nsecret_key={HUSH}\ntls=true\n")
        said = holdfast("dead-letters", "list", *letters, *where, code=3).stderr
        assert "give tls= a context that trusts" in said or "tls_ca_file" in said
        assert HUSH not in said


class TestTls:
    def test_servers_of_another_authority_are_refused_at_once(
        self, field: Field, caplog: pytest.LogCaptureFixture
    ) -> None:
        app = field.app(tls=ssl.create_default_context())
        with pytest.raises(NotTrusted, match="give tls= a context that trusts"):
            app.join()
        assert "trying for another" not in caplog.text

    def test_who_does_not_speak_tls_is_told_of_it(self, field: Field) -> None:
        app = field.app(tls=None, settings=Settings(startup_timeout_s=4.0))
        with pytest.raises(SourceUnavailable, match="if it speaks TLS alone"):
            app.join()


class TestNameServers:
    def test_one_of_several_is_enough(self, field: Field, closed_port: str) -> None:
        field.produce(*numbered("x", 8))
        field.app(namesrv=f"{closed_port};{field.server.namesrv};{closed_port}")
        field.wait_handled(*numbered("x", 8))
        field.wait_committed()


class TestTwoBrokers:
    def test_one_that_is_killed_holds_up_its_own_queues_alone_and_nothing_is_lost_or_runs_twice(
        self, field: Field
    ) -> None:
        produced: list[str] = []

        def produce(prefix: str, *queues: Partition) -> None:
            for queue in queues:
                produced.extend(names := numbered(f"{queue.broker} {queue.number} {prefix} ", 100))
                field.produce_many(queue, names)

        field.do = lambda _: time.sleep(0.002)
        on_a, on_b = ([queue for queue in field.queues() if queue.broker == each] for each in BROKERS)
        produce("begin", *on_a, *on_b)
        first = field.app("first")
        field.wait(lambda: len(first.owns) == 4 and len(field.handled) > 50)
        second = field.app("second")
        field.wait(lambda: len(first.owns) == len(second.owns) == 2)
        field.server.kill_broker("broker-b")
        try:
            produce("alone", *on_a)
            field.wait_handled(*_of_a(produced))
            first.stop()
            field.wait(lambda: {queue.broker for queue in second.owns} >= {"broker-a"})
            third = field.app("third")
            field.wait(lambda: _owned(second.owns | third.owns, "broker-a") == 2 and third.source._queues)
            produce("after", *on_a)
            field.wait_handled(*_of_a(produced))
        finally:
            field.server.start_broker("broker-b")
        _until(field.ends)
        produce("end", *on_a, *on_b)
        field.wait_handled(*produced)
        field.wait_committed()
        assert Counter(field.values()) == Counter(produced)

    def test_health_names_the_queues_that_stand_still_and_the_app_lives(self, field: Field) -> None:
        on_b = [queue for queue in field.queues() if queue.broker == "broker-b"]
        names = [f"{queue} {each}" for queue in on_b for each in range(100)]
        held = threading.Event()
        field.do = lambda _: held.wait(PATIENCE_S)  # type: ignore[assignment]
        # So little is taken in that there is more at the broker.
        first = field.app("first", pull_threshold_for_all=8, pull_batch_size=8)
        field.wait(lambda: len(first.owns) == 4)
        for queue in on_b:
            field.produce_many(queue, [each for each in names if each.startswith(f"{queue} ")])
        field.wait(lambda: all(each.lag for each in first.app.snapshot().partitions if each.partition in on_b))
        field.server.kill_broker("broker-b")
        try:
            held.set()

            def stalled(app: App) -> dict[str, str]:
                found = app.app.health(stall_s=1.0)
                assert found.live
                return {each.partition.broker: each.waits_for for each in found.stalled}

            field.wait(lambda: "client to deliver" in stalled(first).get("broker-b", ""))
            second = field.app("second")  # not before: it may be given all queues of that broker
            field.wait(lambda: "the broker to report" in stalled(second).get("broker-b", ""))
            assert first.told(SourceTrouble)
        finally:
            field.server.start_broker("broker-b")
        field.wait_handled(*names)
        _until(lambda: not (stalled(first) or stalled(second)))
        field.wait_committed()
        assert Counter(field.values()) == Counter(names)

    def test_a_member_starts_while_one_hangs(self, field: Field, caplog: pytest.LogCaptureFixture) -> None:
        first, queues = field.app("first", heartbeat_broker_interval_s=1.0), field.queues()
        field.wait(lambda: len(first.owns) == 4)
        field.server.pause_broker("broker-b")
        try:
            second = field.app("second", heartbeat_broker_interval_s=1.0)
            field.wait(lambda: len(second.source._queues) >= 2)
            field.produce_many(next(queue for queue in queues if queue.broker == "broker-a"), numbered("x", 20))
            field.wait_handled(*numbered("x", 20))
        finally:
            field.server.resume_broker("broker-b")
        field.wait(lambda: len(first.owns) == len(second.owns) == 2)
        names = {app.source._client.client_id for app in (first, second)}
        field.wait(lambda: set(field.client.consumer_ids("broker-b", field.group, deadline())) == names)


class TestSlaves:
    def test_while_there_is_only_a_slave_it_is_read_and_what_needs_the_master_waits(
        self, cluster: Cluster, redis_url: str
    ) -> None:
        server = cluster.server
        with Field(cluster.server, redis_url, queues=2, login=cluster.login, brokers=["broker-a"]) as field:
            field.admin.create_group(field.group, deadline())
            held = threading.Event()
            field.do = lambda _: held.wait(PATIENCE_S)  # type: ignore[assignment]
            first = field.app("first", pull_threshold_for_all=64)
            field.wait(lambda: len(first.owns) == 2)
            old = [*numbered("a", 300), *numbered("b", 300)]
            field.produce_many(0, old[:300])
            field.produce_many(1, old[300:])
            slave = server.add_slave("broker-a")
            try:
                address = server.address(slave)
                _until(lambda: _has(field, address, 300))
                server.kill_broker("broker-a")
                try:
                    held.set()
                    field.wait_handled(*old)
                    second = field.app("second")
                    field.wait(lambda: [queue.topic for queue in second.source._queues].count(field.topic) == 1)
                finally:
                    server.start_broker("broker-a")
                field.wait(lambda: len(first.owns) == len(second.owns) == 1)
                new = numbered("c", 20)
                _until(field.ends)
                field.produce(*new)
                field.wait_handled(*new)
                field.wait_committed()
                assert Counter(field.values()) == Counter([*old, *new])
                for app in field.apps:
                    assert not [each for each in app.events if isinstance(each, ResetHonoured | LogWentBack)]
            finally:
                server.remove_slave(slave)
