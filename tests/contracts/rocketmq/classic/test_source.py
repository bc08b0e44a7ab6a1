"""PushSource on a real broker, with the real C++ client."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import RedisClaims, Retry, Unretriable
from holdfast.adapters.rocketmq import PushSource
from holdfast.adapters.rocketmq.packages import load_classic
from holdfast.adapters.rocketmq.push.servers import Servers
from holdfast.adapters.rocketmq.remoting import Admin, RemotingClient
from holdfast.errors import HandlerFailed, SourceError, SourceUnavailable, SubscriptionDiffers, UnknownTopic
from holdfast.timing import Deadline
from tests.contracts.rocketmq.classic.lab import Topic
from tests.contracts.rocketmq.grpc.lab import PATIENCE_S, App, Gate, new_name
from tests.harness.processes import free_ports
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.servers.rocketmq import RocketMQServer


@pytest.fixture
def topic(rocketmq: RocketMQServer) -> Topic:
    return Topic(rocketmq)


@pytest.fixture
def claims(redis_url: str) -> Iterator[RedisClaims]:
    store = RedisClaims.from_url(redis_url, namespace=new_name("push"))
    yield store
    store.close()


def numbered(count: int) -> list[str]:
    return [f"m{number}" for number in range(count)]


def reconsumed(gate: Gate) -> list[str]:
    return [value for value, record in gate.records.items() if record.header("RECONSUME_TIMES")]


class TestRecords:
    def test_a_group_whose_broker_drops_what_is_given_back_is_refused(self, topic: Topic, claims: RedisClaims) -> None:
        with RemotingClient(topic.server.namesrv) as client:
            Admin(client).create_group(topic.group, Deadline(PATIENCE_S), retry_queues=0)
        with (
            pytest.raises(SourceError, match="retryQueueNums=0"),
            App(topic.source(), [topic.name], Gate(), claims) as app,
        ):
            assert app.over.wait(PATIENCE_S)

    def test_each_is_handled_once_and_committed(self, topic: Topic, claims: RedisClaims) -> None:
        topic.send(numbered(300))
        gate = Gate()
        with App(topic.source(), [topic.name], gate, claims):
            gate.wait(lambda: len(gate.ended) == 300)
            topic.wait(lambda: topic.lag() == 0)  # it commits each 5 s; what it says at its end awaits no answer
        assert sorted(gate.started) == sorted(numbered(300))

    def test_they_carry_what_the_client_tells(self, topic: Topic, claims: RedisClaims) -> None:
        topic.send(["m"], tag="red", color="blue", other="x")
        gate = Gate()
        with App(topic.source(properties=["color"]), [topic.name], gate, claims):
            gate.wait(lambda: gate.ended == ["m"])
        record = gate.records["m"]
        assert (record.topic, record.partition.broker, record.key) == (topic.name, "", b"key-m")
        assert (record.header("TAGS"), record.header("color"), record.header("other")) == (b"red", b"blue", None)
        assert record.header("UNIQ_KEY")
        assert abs(record.timestamp_ms / 1000 - time.time()) < PATIENCE_S

    def test_a_topic_that_was_made_again_is_handled_whole_though_its_log_is_longer(
        self, topic: Topic, claims: RedisClaims
    ) -> None:
        for prefix, count in (("old", 30), ("new", 60)):
            topic.send(f"{prefix}{number}" for number in range(count))
            gate = Gate()
            with App(topic.source(), [topic.name], gate, claims):
                gate.wait(lambda gate=gate, count=count: len(gate.ended) == count)  # type: ignore[misc]
            assert sorted(gate.started) == sorted(f"{prefix}{number}" for number in range(count))
            topic.make_again()

    def test_tags_are_the_clients_own(self, topic: Topic, claims: RedisClaims) -> None:
        topic.send(["a"], tag="red")
        topic.send(["b"], tag="blue")
        topic.send(["c"], tag="green")
        gate = Gate()
        with App(topic.source(tags={topic.name: "red || green"}), [topic.name], gate, claims):
            gate.wait(lambda: sorted(gate.ended) == ["a", "c"])

    def test_two_topics_go_to_their_handlers(self, rocketmq: RocketMQServer, claims: RedisClaims) -> None:
        one, two = Topic(rocketmq), Topic(rocketmq)
        one.send(["one"])
        two.send(["two"])
        gate = Gate()
        with App(one.source(), [one.name, two.name], gate, claims):
            gate.wait(lambda: sorted(gate.ended) == ["one", "two"])
        assert {value: record.topic for value, record in gate.records.items()} == {"one": one.name, "two": two.name}

    def test_a_copy_with_the_same_business_key_is_skipped(self, topic: Topic, claims: RedisClaims) -> None:
        topic.send(['{"order_id": 1}', '{"order_id": 1}', '{"order_id": 2}'])
        gate = Gate()
        with App(topic.source(), [topic.name], gate, claims, key="order_id"):
            gate.wait(lambda: len(gate.ended) == 2)
            topic.wait(lambda: topic.lag() == 0)  # it commits each 5 s
        assert sorted(gate.started) == ['{"order_id": 1}', '{"order_id": 2}']
        assert topic.lag() == 0

    def test_a_new_group_begins_where_it_is_said(self, topic: Topic, claims: RedisClaims) -> None:
        topic.send(["before"])
        gate = Gate()
        with App(topic.source(consume_from_where="latest"), [topic.name], gate, claims):
            topic.wait(lambda: len(topic.members()) == 1)
            topic.send(["after"])
            gate.wait(lambda: gate.ended == ["after"])

    def test_what_a_known_group_missed_in_queues_that_are_new_to_it_is_read(
        self, rocketmq: RocketMQServer, claims: RedisClaims
    ) -> None:
        topic = Topic(rocketmq, queues=2)
        with RemotingClient(rocketmq.namesrv) as client:
            Admin(client).create_group(topic.group, Deadline(PATIENCE_S))
            known, _ = client.route(topic.name, Deadline(PATIENCE_S)).queues()
            client.commit_offset(known, topic.group, 0, Deadline(PATIENCE_S))
        topic.send(numbered(8))
        gate = Gate()
        with App(topic.source(consume_from_where="latest"), [topic.name], gate, claims):
            gate.wait(lambda: sorted(gate.ended) == numbered(8))

    def test_a_letter_goes_to_the_groups_own_topic_and_the_record_does_not_come_again(
        self, topic: Topic, claims: RedisClaims
    ) -> None:
        topic.send(numbered(3))
        gate = Gate()
        gate.handle = TestWhatComesAgain.failing_at("m1", gate)  # type: ignore[method-assign]
        with App(topic.source(), [topic.name], gate, claims, handler={"dead_letter": "%DLQ%"}):
            gate.wait(lambda: sorted(gate.ended) == ["m0", "m2"])
            topic.wait(lambda: topic.lag() == 0)
        assert topic.letters() == [b"m1"]


class TestWhatComesAgain:
    def test_a_batch_comes_again_as_a_whole_and_only_what_was_not_done_runs(
        self, rocketmq: RocketMQServer, claims: RedisClaims
    ) -> None:
        """Limit: one record that is given back takes along what was done before it and what follows it in its batch."""
        topic = Topic(rocketmq, queues=1)
        topic.send(numbered(20))
        gate, broken = Gate(), Gate()
        broken.handle = self.failing_at("m5", broken)  # type: ignore[method-assign]
        with (
            pytest.raises(HandlerFailed),
            App(topic.source(threads=1), [topic.name], broken, claims, handler={"retry": Retry(attempts=1)}) as app,
        ):
            assert app.over.wait(PATIENCE_S)
        assert broken.ended == numbered(5)
        with App(topic.source(), [topic.name], gate, claims):
            gate.wait(lambda: len(gate.ended) == 15)
        assert sorted(gate.started) == sorted(numbered(20)[5:])
        assert sorted(reconsumed(gate)) == sorted(numbered(20)[5:])
        assert {record.partition.broker for record in gate.records.values()} == {"retry"}

    @staticmethod
    def failing_at(value: str, gate: Gate) -> Any:
        handle = gate.handle

        def fail(record: Any) -> None:
            if record.value == value.encode():
                raise Unretriable("no")
            handle(record)

        return fail

    def test_a_stop_brings_the_batches_that_were_begun_to_their_end(
        self, rocketmq: RocketMQServer, claims: RedisClaims
    ) -> None:
        topic = Topic(rocketmq, queues=1)
        topic.send(numbered(30))
        gate = Gate()
        gate.hold("m0")
        with App(topic.source(threads=1), [topic.name], gate, claims) as app:
            gate.wait(lambda: "m0" in gate.started)
            app.app.stop()
            gate.let_go()
            assert app.over.wait(PATIENCE_S)
        done = len(gate.ended)
        assert done > 1
        later = Gate()
        with App(topic.source(), [topic.name], later, claims):
            later.wait(lambda: len(later.ended) == 30 - done)
        assert sorted(gate.ended + later.ended) == sorted(numbered(30))
        assert reconsumed(later) == []

    def test_a_stop_ends_in_time_where_handlers_do_not(self, topic: Topic, claims: RedisClaims) -> None:
        """Their batches are given back; who takes over waits until the lease of the one that left has ended."""
        topic.send(numbered(40))
        gate = Gate()
        gate.hold(*numbered(40))
        with App(topic.source(), [topic.name], gate, claims, drain_timeout_s=0.5, linger_timeout_s=0.1) as app:
            gate.wait(lambda: len(gate.started) >= 4)
            app.app.stop()
            assert app.over.wait(PATIENCE_S)
        later = Gate()
        with App(topic.source(), [topic.name], later, claims):
            later.wait(lambda: len(later.ended) == 40)
        gate.let_go()

    def test_a_session_that_is_lost_asks_nothing_of_the_broker(
        self, topic: Topic, claims: RedisClaims, redis_url: str
    ) -> None:
        topic.send(numbered(40))
        gate = Gate()
        gate.hold("m0")
        with App(topic.source(), [topic.name], gate, claims, workers=1) as app:
            gate.wait(lambda: "m0" in gate.started)
            engine = app.app._engine
            assert engine is not None
            before = engine.parts.sessions.session
            assert before is not None
            before.end()  # as others see one that is lost
            gate.let_go()
            gate.wait(lambda: len(set(gate.ended)) == 40)
        assert reconsumed(gate) == []
        assert set(gate.started) - {"m0"} == set(numbered(40)) - {"m0"}
        assert len(gate.started) <= 41  # what ran when its session was lost may run again


class TestSubscriptions:
    @pytest.mark.parametrize("by", ["the broker", "the store"])
    def test_of_two_that_subscribe_otherwise_the_second_is_refused(
        self, topic: Topic, claims: RedisClaims, by: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As in a rolling deploy that adds a tag: half of its messages would be lost."""
        tags, gate = [{topic.name: each} for each in ("Paid", "Paid || Refunded")], Gate()
        store = claims if by == "the store" else None
        with App(topic.source(tags=tags[0]), [topic.name], gate, store):
            topic.wait(lambda: len(topic.members()) == 1)
            if by == "the store":
                monkeypatch.setattr(Servers, "_check_subscriptions", lambda *_: None)
            with (
                pytest.raises(SubscriptionDiffers, match=r"Paid \|\| Refunded"),
                App(topic.source(tags=tags[1]), [topic.name], gate, store) as other,
            ):
                assert other.over.wait(PATIENCE_S)
            with App(topic.source(tags=tags[0]), [topic.name], gate, store):
                topic.wait(lambda: len(topic.members()) == 2)
        with App(topic.source(tags=tags[1]), [topic.name], gate, store):
            topic.send(["new"], tag="Refunded")
            gate.wait(lambda: gate.ended == ["new"])


class TestServersThatAreAway:
    def test_a_name_server_that_is_away_is_an_error_at_the_start(self, topic: Topic, claims: RedisClaims) -> None:
        address = f"127.0.0.1:{free_ports(1)[0]}"
        said = f"^{address} refuses connections: nothing listens there: check the address, and that the server runs$"
        app = App(topic.source(namesrv=address), [topic.name], Gate(), claims, startup_timeout_s=2.0)
        with pytest.raises(SourceUnavailable, match=said), app:
            assert app.over.wait(PATIENCE_S)

    def test_it_is_ready_when_a_broker_has_it_in_the_group(self, topic: Topic, claims: RedisClaims) -> None:
        source = topic.source()
        assert not source.in_group
        with App(source, [topic.name], Gate(), claims) as app:
            until(lambda: app.app.health().ready, "not ready", patience_s=PATIENCE_S)
            with RemotingClient(topic.server.namesrv) as client:
                client.route(topic.name, Deadline(PATIENCE_S))
                seen = Admin(client).connections("broker-a", topic.group, Deadline(PATIENCE_S))
        assert seen is not None
        assert len(seen.members) == 1

    def test_the_clients_own_start_says_nothing(self, topic: Topic) -> None:
        """Limit: shows why the route is asked for first."""
        consumer = load_classic().PushConsumer(topic.group)
        consumer.set_namesrv_addr(f"127.0.0.1:{free_ports(1)[0]}")
        consumer.subscribe(topic.name, lambda _: None)
        consumer.start()
        consumer.shutdown()

    def test_a_topic_that_is_not_there_is_an_error_at_the_start(self, topic: Topic, claims: RedisClaims) -> None:
        missing = [new_name("none"), new_name("none")]
        with pytest.raises(UnknownTopic) as caught, App(topic.source(), missing, Gate(), claims) as app:
            assert app.over.wait(PATIENCE_S)
        assert all(name in str(caught.value) for name in missing)

    def test_nothing_is_given_back_to_a_broker_that_does_not_answer(
        self, rocketmq: RocketMQServer, claims: RedisClaims
    ) -> None:
        """Limit: the client would count it as given back, and commit behind it."""
        topic = Topic(rocketmq, queues=1)
        topic.send(numbered(10))
        gate = Gate()
        gate.hold("m0")
        source = topic.source(threads=1)
        with App(source, [topic.name], gate, claims, drain_timeout_s=0.2, linger_timeout_s=0.1) as app:
            gate.wait(lambda: "m0" in gate.started)
            rocketmq.pause_broker()
            try:
                app.app.stop()
                assert not app.over.wait(3.0)
                assert source._inbox.waiting == 1
            finally:
                rocketmq.resume_broker()
            assert app.over.wait(PATIENCE_S)
        gate.let_go()
        later = Gate()
        with App(topic.source(), [topic.name], later, claims):
            later.wait(lambda: sorted(later.ended) == numbered(10))


class TestLimits:
    def test_a_body_ends_at_its_first_nul(self, topic: Topic, claims: RedisClaims) -> None:
        topic.send([b"abc\x00def"])
        gate = Gate()
        with App(topic.source(), [topic.name], gate, claims):
            gate.wait(lambda: len(gate.ended) == 1)
        assert gate.ended == ["abc"]

    def test_no_more_than_the_threads_are_handed_over_at_once(self, topic: Topic, claims: RedisClaims) -> None:
        topic.send(numbered(100))
        gate = Gate()
        gate.hold(*numbered(100))
        with App(topic.source(threads=3), [topic.name], gate, claims):
            gate.wait(lambda: len(gate.started) == 3)
            gate.let_go()
            gate.wait(lambda: len(gate.ended) == 100)

    def test_patterns_are_refused(self, topic: Topic, claims: RedisClaims) -> None:
        with pytest.raises(SourceError, match="names alone"), App(topic.source(), ["^orders"], Gate(), claims) as app:
            assert app.over.wait(PATIENCE_S)

    def test_two_in_one_process_are_two_members(self, topic: Topic, claims: RedisClaims) -> None:
        gate = Gate()
        with App(topic.source(), [topic.name], gate, claims), App(topic.source(), [topic.name], gate, claims):
            topic.send(numbered(50))
            gate.wait(lambda: len(gate.ended) == 50)
        assert sorted(gate.started) == sorted(numbered(50))


def test_the_face_gives_it() -> None:
    assert PushSource.__name__ == "PushSource"
