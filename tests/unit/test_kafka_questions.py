"""What is asked of a cluster beside the consumer: an answer or an error for each, and nothing remembered wrongly."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import Future
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from holdfast.adapters.kafka import KafkaSource
from holdfast.adapters.kafka import admin as admins
from holdfast.adapters.kafka.admin import Admin
from holdfast.adapters.kafka.broker_features import NOT_ASKED
from holdfast.adapters.kafka.callbacks import Callbacks
from holdfast.adapters.kafka.commit_mark import CommitMark
from holdfast.adapters.kafka.config import check
from holdfast.adapters.kafka.emission import emit
from holdfast.adapters.kafka.joining import consumer_of
from holdfast.adapters.kafka.quirks import log_ends
from holdfast.adapters.kafka.quirks.log_ends import LogEnds
from holdfast.adapters.kafka.topic_ids import TopicIds
from holdfast.errors import NotAuthorised, SourceFatal, SourceUnavailable, UnknownTopic
from holdfast.plugin.ports import NOTHING, CommitFate
from holdfast.records import Partition
from holdfast.timing import Deadline
from tests.harness.servers.certificates import Certificates
from tests.harness.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

CONF = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
NO_ID = "A" * 22
REFUSED = KafkaError(KafkaError._AUTHENTICATION, "a broker that had not loaded its users yet")
PARTITION = Partition("orders", 0)


class Cluster:
    """In the place of an AdminClient: ids by topic, errors of the client when it is polled."""

    def __init__(self, admin: Admin, ids: dict[str, str | int]) -> None:
        self.ids, self.errors = ids, admin._errors
        self.untold: list[KafkaError] = []
        self.id: str | None = "c"
        admin._client = self  # type: ignore[assignment]

    def poll(self, _: float) -> int:
        told, self.untold = len(self.untold), self.untold[:0]
        return told

    def list_topics(self, topic: str, **_: Any) -> Any:
        parts = {number: SimpleNamespace(leader=number - 1, error=None) for number in range(3)}
        wrong = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART) if topic not in self.ids else None
        found = SimpleNamespace(error=wrong, partitions={} if wrong else parts)
        return SimpleNamespace(cluster_id=self.id, topics={topic: found})

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        futures: dict[str, Future[Any]] = {}
        for topic in topics.topic_names:
            future = futures[topic] = Future()
            if topic in self.ids:
                future.set_result(SimpleNamespace(topic_id=self.ids[topic]))
            else:
                future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return futures


def topic_ids(**ids: str | int) -> tuple[TopicIds, Cluster]:
    admin = Admin(CONF)
    return TopicIds(admin), Cluster(admin, ids)


def test_a_topic_that_is_gone_hides_no_other() -> None:
    asks, _ = topic_ids(orders="one")
    found = asks.of_each(["orders", "gone"], Deadline(60))
    assert found["orders"] == "one"
    assert isinstance(found["gone"], UnknownTopic)
    with pytest.raises(UnknownTopic):
        asks.of(["orders", "gone"], Deadline(60))


def test_a_partition_without_a_leader_hides_no_other() -> None:
    asks, _ = topic_ids(orders="one")
    found = asks._admin.leaders(["orders", "gone"], Deadline(60))
    assert found[Partition("orders", 1)] == 0
    assert found[Partition("orders", 2)] == 1
    assert isinstance(found[Partition("orders", 0)], SourceUnavailable)
    assert isinstance(found[Partition("gone", -1)], UnknownTopic)


def test_ids_that_appear_or_disappear_make_no_topic_another_one() -> None:
    for first, later in (("one", NO_ID), (NO_ID, "one")):
        asks, cluster = topic_ids(orders=first)
        before = asks.of(["orders"], Deadline(60))
        cluster.ids["orders"] = later
        assert asks.of(["orders"], Deadline(60)) == before
        cluster.ids["orders"] = first
        assert asks.of(["orders"], Deadline(60)) == before
    asks, cluster = topic_ids(orders="one")
    assert asks.of(["orders"], Deadline(60)) == {"orders": "one"}
    cluster.ids["orders"] = "another"
    assert asks.of(["orders"], Deadline(60)) == {"orders": "another"}


def test_where_topics_have_no_ids_the_cluster_keeps_two_of_them_apart() -> None:
    """One Redis, one namespace, one group: what is done of the one's log says nothing of the other's."""
    names, ids = [], (NO_ID, NO_ID, "one", "one")
    for cluster_id, topic_id in zip(("a", "b", "a", "b"), ids, strict=True):
        asks, cluster = topic_ids(orders=topic_id)
        cluster.id = cluster_id
        mark = CommitMark("g", asks, lambda: "")
        names.append(mark.position_names([PARTITION], Deadline(60))[PARTITION])
    assert names == ["g/orders/a/0", "g/orders/b/0", "g/orders/one/0", "g/orders/one/0"]


@pytest.mark.parametrize("cluster_id", [None, ""])
def test_a_cluster_that_gets_its_id_later_is_the_same_for_who_runs(cluster_id: str | None) -> None:
    asks, cluster = topic_ids(orders=NO_ID)
    cluster.id = cluster_id
    mark = CommitMark("g", asks, lambda: "")
    before = mark.position_names([PARTITION], Deadline(60))
    cluster.id = "made meanwhile"
    assert mark.position_names([PARTITION], Deadline(60)) == before == {PARTITION: "g/orders//0"}


@pytest.mark.parametrize(("committed_with", "now"), [(NO_ID, "one"), ("one", NO_ID), ("one", "one")])
def test_a_commit_from_before_the_brokers_were_upgraded_is_ours(committed_with: str, now: str) -> None:
    asks, _ = topic_ids(orders=committed_with)
    mark = CommitMark("g", asks, lambda: "")
    mark.position_names([PARTITION], Deadline(60))
    [committed] = mark.marked({PARTITION: 7})
    asks, _ = topic_ids(orders=now)
    mark = CommitMark("g", asks, lambda: "")
    mark.position_names([PARTITION], Deadline(60))
    read = mark.read(committed)
    assert read is not None
    assert (read.offset, read.ours) == (7, True)
    moved = mark.read(TopicPartition("orders", 0, 5, committed.metadata))
    assert moved is not None
    assert not moved.ours  # somebody has set another offset and kept the metadata


def test_what_a_client_has_met_before_a_question_says_nothing_of_it() -> None:
    admin = Admin(CONF)
    cluster = Cluster(admin, {})
    cluster.errors.append(REFUSED)
    future: Future[str] = Future()
    answering = threading.Timer(0.02, future.set_result, ["fine"])
    answering.start()
    assert admin.answer(future, Deadline(60), "asking") == "fine"
    answering.join()


def test_what_it_meets_meanwhile_is_raised_at_once() -> None:
    admin = Admin(CONF)
    cluster = Cluster(admin, {})

    def poll(timeout_s: float) -> int:
        if timeout_s:
            cluster.errors.append(REFUSED)
        return 0

    cluster.poll = poll  # type: ignore[method-assign,assignment]
    with pytest.raises(NotAuthorised):
        admin.answer(Future(), Deadline(3600), "asking")


def test_a_question_that_is_under_way_has_an_end_though_another_client_takes_the_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without one the ends of the logs would never be known again: the ramp and a drain would go without."""
    monkeypatch.setattr(log_ends, "_REQUEST_S", 0.3)
    monkeypatch.setattr(admins, "_LIVES_S", 0.0)
    admin = Admin(CONF)
    ends = LogEnds(admin, CONF)
    assert ends.look([PARTITION]) is None
    before = id(admin.client)
    admin.doubt(KafkaError(KafkaError._TIMED_OUT))
    assert id(admin.client) != before
    with pytest.raises(SourceUnavailable):
        until(lambda: ends.look([PARTITION]) is not None)


def test_a_client_that_a_short_question_left_no_time_to_connect_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a cluster that is far away each next one would be too late as well, and nothing would ever be answered."""
    monkeypatch.setattr(admins, "_LIVES_S", 0.2)
    admin = Admin(CONF)
    before = admin.client
    for same in (True, False):
        with pytest.raises(SourceUnavailable):
            admin.reach(Deadline(0.15))
        admin._made_at -= 30.0  # half a minute later, as a group's topics are looked at
        assert (admin.client is before) is same


def test_a_source_that_is_closed_lets_its_client_for_questions_go_at_once() -> None:
    """Left to Python's collector of cycles, it may end inside of its own answer, and librdkafka aborts the process."""
    source = KafkaSource(CONF, assignment="keep")
    assert source.look_at_ends([PARTITION]) is None
    client = weakref.ref(source._admin.client)
    source.close(Deadline(0))
    assert client() is None


def test_who_cannot_make_another_client_keeps_the_one_that_it_has(
    monkeypatch: pytest.MonkeyPatch, authority: Path
) -> None:
    """Its files may be missing for a moment, as while a certificate is renewed: that is no reason to stop."""
    monkeypatch.setattr(admins, "_LIVES_S", 0.0)
    admin = Admin({**CONF, "security.protocol": "ssl", "ssl.ca.location": str(authority)})
    before = admin.client
    authority.unlink()
    admin.doubt(KafkaError(KafkaError._TIMED_OUT))
    assert admin.client is before
    with pytest.raises(SourceUnavailable):
        admin.reach(Deadline(0.1))


def test_a_client_that_cannot_be_made_anew_is_tried_again(authority: Path) -> None:
    source = KafkaSource({**CONF, "security.protocol": "ssl", "ssl.ca.location": str(authority)}, assignment="keep")
    source._client = emit(check(source._checked.conf, "keep"), NOT_ASKED)
    authority.unlink()
    with pytest.raises(SourceFatal, match=r"ssl\.ca\.location"):
        source.poll(1, 0)
    assert source.poll(1, 0) == NOTHING  # not at once
    assert source._renewal.left_s > 0


def test_what_a_callback_of_the_application_raises_leaves_no_poll(caplog: pytest.LogCaptureFixture) -> None:
    """It would take along what that poll had got, and end the app: figures are not worth that."""
    called = threading.Event()

    def told(_: str) -> None:
        called.set()
        raise ValueError("no such gauge")

    conf = {**CONF, "statistics.interval.ms": 10, "stats_cb": told}
    client = emit(check(conf, "keep"), NOT_ASKED)
    with closing(consumer_of(client, Callbacks("g", "here"), begins_by_itself=True, name="web1-1")) as consumer:
        until(lambda: consumer.poll(0.05) or called.is_set())
    assert "stats_cb failed" in caplog.text
    assert "no such gauge" in caplog.text


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    return Certificates(tmp_path).ca_file


class TestTroubleOfTheConsumer:
    def test_refused_credentials_end_a_start(self) -> None:
        callbacks = Callbacks("g", "here")
        callbacks.on_error(REFUSED)
        assert isinstance(callbacks.take_trouble(), NotAuthorised)

    @pytest.mark.parametrize("let_in", [{"connected": True}, {"assignments": 1}])
    def test_later_they_are_told_now_and_then_and_end_nothing(self, let_in: dict[str, Any]) -> None:
        callbacks = Callbacks("g", "here")
        vars(callbacks).update(let_in)
        callbacks.on_error(REFUSED)
        told = callbacks.take_trouble()
        assert told is not None
        assert told.retriable
        assert "sasl" in str(told)
        callbacks.on_error(REFUSED)
        assert callbacks.take_trouble() is None

    def test_a_group_that_is_closed_to_us_ends_a_start_though_we_were_let_in_to_the_broker(self) -> None:
        callbacks = Callbacks("g", "here")
        callbacks.connected = True
        callbacks.met(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), "joining g")
        assert isinstance(callbacks.take_trouble(), NotAuthorised)

    def test_what_ends_the_app_is_not_hidden_by_what_does_not(self) -> None:
        callbacks = Callbacks("g", "here")
        callbacks.assignments = 1
        callbacks.met(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), "consuming gone")
        callbacks.met(KafkaError(KafkaError._BAD_MSG), "consuming orders")
        trouble = callbacks.take_trouble()
        assert trouble is not None
        assert not trouble.retriable

    def test_a_commit_that_is_refused_for_want_of_rights_is_sent_again(self) -> None:
        callbacks = Callbacks("g", "here")
        callbacks.assignments = 1
        seen: list[Any] = []
        callbacks.listener = SimpleNamespace(committed=lambda *told: seen.append(told))
        callbacks.on_commit(
            KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), [TopicPartition("orders", 0, 7, "holdfast:1:7:::")]
        )
        callbacks.tell_commits()
        assert seen == [({PARTITION: 7}, {PARTITION: CommitFate.AGAIN})]
        told = callbacks.take_trouble()
        assert told is not None
        assert told.retriable
