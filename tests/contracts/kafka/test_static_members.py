"""Static members on a real broker: who comes back moves nothing, who leaves for good frees at once, a name is one's."""

from __future__ import annotations

import logging
import threading
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer

from holdfast import MemoryClaims
from holdfast.adapters.kafka import KafkaConsumer, KafkaSource
from holdfast.adapters.kafka.quirks.leave_static import Failed, StaticMember, tell
from holdfast.errors import SettingError, StaticIdTaken
from holdfast.plugin.events import RebalanceReport, SourceTrouble
from holdfast.timing import Deadline
from tests.contracts.kafka.test_source import PROTOCOLS, Running, produce
from tests.harness.servers.kafka import KafkaServer
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.full

#: Longer than anything here is waited for: what waits for a session fails.
_SESSION_MS = int(2000 * PATIENCE_S)
_CONSUMER_GROUP_HEARTBEAT = 68


@pytest.fixture(params=["eager", "cooperative", "consumer"])
def protocol(request: pytest.FixtureRequest) -> dict[str, Any]:
    conf = dict(PROTOCOLS[request.param])
    if request.param != "consumer":  # there the broker says it: 6 s in these tests
        conf["session.timeout.ms"] = _SESSION_MS
    return conf


@pytest.fixture(scope="module")
def patient() -> Iterator[KafkaServer]:
    """A broker whose sessions are long in the consumer protocol too, where they are its own to say."""
    sessions = ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms")
    with KafkaServer(lines=1, properties=dict.fromkeys(sessions, str(_SESSION_MS))) as server:
        yield server


@pytest.fixture
def patient_topic(patient: KafkaServer) -> str:
    name = f"static-{uuid.uuid4().hex[:8]}"
    patient.create_topic(name, 2)
    return name


def members(kafka: KafkaServer, group: str) -> list[str]:
    """The static ids in the group, as the broker sees it."""
    found = kafka.described(group)
    return sorted(member.group_instance_id or "" for member in found.members)


def owned(member: Running) -> set[int]:
    """The partitions that it may work on."""
    engine = member.app._engine
    owners = getattr(getattr(engine, "family", None), "owners", {})
    return {partition.number for partition, owner in list(owners.items()) if owner.open}


def rebalances(kafka: KafkaServer, group: str) -> int:
    """Those of a classic group, as the broker has logged them."""
    return kafka.log_file.read_text().count(f"Preparing to rebalance group {group} ")


def produce_to_all(kafka: KafkaServer, topic: str, count: int) -> None:
    for partition in range(2):
        produce(kafka, topic, count, partition)


def start(kafka: KafkaServer, redis_url: str, topic: str, name: str, protocol: dict[str, Any]) -> Running:
    return Running(kafka, redis_url, topic, topic, protocol | {"group.instance.id": name})


def test_a_restart_under_the_same_id_moves_nothing_and_repeats_nothing(
    patient: KafkaServer, redis_url: str, patient_topic: str, protocol: dict[str, Any]
) -> None:
    kafka, topic = patient, patient_topic
    first, second = (start(kafka, redis_url, topic, name, protocol) for name in ("one", "two"))
    until(lambda: len(owned(first)) == len(owned(second)) == 1)
    produce_to_all(kafka, topic, 10)
    until(lambda: first.handled and second.handled)
    before, had = (second.source._callbacks.assignments, rebalances(kafka, topic)), owned(first)
    # While the two joined, the second may have had both for a moment.
    gave = len([report for report in second.told(RebalanceReport) if report.given])
    first.stop()
    produce_to_all(kafka, topic, 20)
    again = start(kafka, redis_url, topic, "one", protocol)
    until(lambda: owned(again) == had)
    until(lambda: kafka.committed(topic, topic) == kafka.end_offsets(topic))
    handled = [*first.handled, *second.handled, *again.handled]
    assert len(handled) == len(set(handled)) == sum(kafka.end_offsets(topic).values())
    assert (second.source._callbacks.assignments, rebalances(kafka, topic)) == before
    assert len([report for report in second.told(RebalanceReport) if report.given]) == gave
    again.stop(leave=True)
    second.stop(leave=True)


@pytest.mark.parametrize("name", ["eager", "cooperative"])
def test_of_who_does_not_come_back_others_have_the_partitions_once_its_session_has_ended(
    patient: KafkaServer, redis_url: str, patient_topic: str, name: str
) -> None:
    kafka, topic = patient, patient_topic
    first, second = (start(kafka, redis_url, topic, each, PROTOCOLS[name]) for each in ("one", "two"))
    until(lambda: len(owned(first)) == len(owned(second)) == 1)
    produce_to_all(kafka, topic, 10)
    until(lambda: kafka.committed(topic, topic) == {0: 10, 1: 10})
    first.stop()
    produce_to_all(kafka, topic, 10)
    until(lambda: len(owned(second)) == 2)
    until(lambda: kafka.committed(topic, topic) == {0: 20, 1: 20})
    second.stop(leave=True)
    assert len(first.handled) + len(second.handled) == 40


def test_who_leaves_for_good_frees_its_partitions_at_once(
    patient: KafkaServer, redis_url: str, patient_topic: str, protocol: dict[str, Any]
) -> None:
    kafka, topic = patient, patient_topic
    first, second = (start(kafka, redis_url, topic, name, protocol) for name in ("one", "two"))
    until(lambda: len(owned(first)) == len(owned(second)) == 1)
    first.stop(leave=True)
    until(lambda: len(owned(second)) == 2)
    assert first.error is None
    second.stop(leave=True)


def test_so_does_one_that_has_no_partition(
    patient: KafkaServer, redis_url: str, patient_topic: str, protocol: dict[str, Any]
) -> None:
    kafka, topic = patient, patient_topic
    running = [start(kafka, redis_url, topic, name, protocol) for name in ("one", "two", "three")]
    until(lambda: len(members(kafka, topic)) == 3)
    until(lambda: sorted(len(owned(each)) for each in running) == [0, 1, 1])
    [idle] = [each for each in running if not owned(each)]
    idle.stop(leave=True)
    until(lambda: len(members(kafka, topic)) == 2)
    for each in running:
        each.stop(leave=True)


def test_a_source_that_always_leaves_needs_no_word_at_the_stop(
    patient: KafkaServer, redis_url: str, patient_topic: str, protocol: dict[str, Any]
) -> None:
    kafka, topic = patient, patient_topic
    member = Running(kafka, redis_url, topic, topic, protocol | {"static_id": lambda: "one", "leave": True})
    until(lambda: len(owned(member)) == 2)
    assert members(kafka, topic) == ["one"]
    member.stop()
    until(lambda: members(kafka, topic) == [])


@pytest.mark.parametrize("name", ["eager", "cooperative"])
def test_of_two_with_one_id_the_older_stops_and_says_why(
    patient: KafkaServer, redis_url: str, patient_topic: str, name: str
) -> None:
    kafka, topic = patient, patient_topic
    produce(kafka, topic, 20)
    first = start(kafka, redis_url, topic, "one", PROTOCOLS[name])
    until(lambda: len(first.handled) == 20)
    second = start(kafka, redis_url, topic, "one", PROTOCOLS[name])
    until(lambda: not first.alive)
    assert isinstance(first.error, StaticIdTaken)
    assert "group.instance.id=one" in str(first.error)
    produce(kafka, topic, 20)
    until(lambda: len({*first.handled, *second.handled}) == 40)
    second.stop(leave=True)
    assert second.error is None  # nobody fought back
    assert len(first.handled) + len(second.handled) == 40


def test_under_the_consumer_protocol_the_newer_waits_for_the_older_with_one_line(
    patient: KafkaServer, redis_url: str, patient_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    kafka, topic = patient, patient_topic
    caplog.set_level(logging.INFO)
    produce(kafka, topic, 20)
    first = start(kafka, redis_url, topic, "one", PROTOCOLS["consumer"])
    until(lambda: len(first.handled) == 20)
    second = start(kafka, redis_url, topic, "one", PROTOCOLS["consumer"] | {"startup_timeout_s": 1.0})
    until(lambda: second.source._renewal.in_a_row >= 5)  # by then the time to start is over
    assert len(second.told(SourceTrouble)) == 1
    produce(kafka, topic, 20)
    until(lambda: len(first.handled) == 40)
    first.stop()  # it comes back: the newer one is who does
    until(lambda: len(owned(second)) == 2)
    until(lambda: "has joined after" in caplog.text)
    assert len(second.told(SourceTrouble)) == 1
    second.stop(leave=True)
    assert second.handled == []


def test_and_gives_up_after_longer_than_a_dead_ones_session(
    patient: KafkaServer, redis_url: str, patient_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, topic = patient, patient_topic
    monkeypatch.setattr("holdfast.adapters.kafka.renewal._REFUSED_S", 3.0)
    first = start(kafka, redis_url, topic, "one", PROTOCOLS["consumer"])
    until(lambda: len(owned(first)) == 2)
    second = start(kafka, redis_url, topic, "one", PROTOCOLS["consumer"])
    until(lambda: not second.alive)
    assert isinstance(second.error, StaticIdTaken)
    assert len(owned(first)) == 2
    first.stop(leave=True)
    assert first.error is None


@pytest.fixture
def busy(patient: KafkaServer, patient_topic: str, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """The configuration of a classic protocol, in whose group a member does not poll: who joins now is not let in."""
    conf = PROTOCOLS[request.param] | {"session.timeout.ms": _SESSION_MS}
    own = {"bootstrap.servers": patient.bootstrap, "group.id": patient_topic, "enable.auto.commit": False}
    member = Consumer({**conf, **own, "log_level": 0})
    try:
        member.subscribe([patient_topic])
        until(lambda: member.poll(0.1) is None and member.assignment())
        yield conf
    finally:
        member.close()


@pytest.mark.parametrize("busy", ["eager", "cooperative"], indirect=True)
def test_an_app_that_leaves_for_good_before_it_is_let_in_is_out_at_once(
    patient: KafkaServer, redis_url: str, patient_topic: str, busy: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    joining = start(patient, redis_url, patient_topic, "one", busy)
    until(lambda: members(patient, patient_topic) == ["", "one"])
    joining.stop(leave=True)
    assert members(patient, patient_topic) == [""]
    assert joining.error is None
    assert "for good" not in caplog.text


@pytest.mark.parametrize("busy", ["eager", "cooperative"], indirect=True)
@pytest.mark.parametrize("unsubscribes", [False, True])
def test_so_is_a_loop(patient: KafkaServer, patient_topic: str, busy: dict[str, Any], unsubscribes: bool) -> None:
    conf = {**busy, "bootstrap.servers": patient.bootstrap, "group.id": patient_topic}
    loop = KafkaConsumer(conf, claims=MemoryClaims(), static_id="one", leave=True)
    loop.subscribe([patient_topic])
    until(lambda: loop.poll(0.1) is None and members(patient, patient_topic) == ["", "one"])
    if unsubscribes:
        loop.unsubscribe()
    loop.close()
    assert members(patient, patient_topic) == [""]


def test_a_loop_that_has_never_joined_leaves_the_name_to_who_has_it(patient: KafkaServer, patient_topic: str) -> None:
    conf = {"bootstrap.servers": patient.bootstrap, "group.id": patient_topic, **PROTOCOLS["eager"]}
    conf |= {"session.timeout.ms": _SESSION_MS}
    member, other = (KafkaConsumer(conf, claims=MemoryClaims(), static_id="one", leave=True) for _ in range(2))
    member.subscribe([patient_topic])
    until(lambda: member.poll(0.1) is None and member.assignment())
    other.close()
    assert members(patient, patient_topic) == ["one"]
    member.close()


@pytest.mark.parametrize("leave", [False, True])
def test_under_the_consumer_protocol_one_that_stops_before_it_is_let_in_says_so_too(
    patient: KafkaServer, redis_url: str, patient_topic: str, leave: bool
) -> None:
    conf = PROTOCOLS["consumer"] | {"bootstrap.servers": patient.address(0)}
    [wire] = patient.wires(0)
    wire.unanswered.add(_CONSUMER_GROUP_HEARTBEAT)
    joining = start(patient, redis_url, patient_topic, "one", conf)
    until(lambda: members(patient, patient_topic) == ["one"])
    stopping = threading.Thread(target=joining.stop, kwargs={"leave": leave})
    stopping.start()
    until(lambda: joining.source._consumer is None)  # the client's last word is not heard, what is said by hand is
    wire.unanswered.clear()
    stopping.join(PATIENCE_S)
    assert members(patient, patient_topic) == ([] if leave else ["one"])
    again = start(patient, redis_url, patient_topic, "one", PROTOCOLS["consumer"])
    until(lambda: len(owned(again)) == 2)
    again.stop(leave=True)
    assert again.told(SourceTrouble) == []  # which it would be told: the name is another's


def test_a_leave_of_who_is_no_member_is_no_trouble_and_one_that_nobody_hears_is(
    patient: KafkaServer, patient_topic: str
) -> None:
    kafka, topic = patient, patient_topic
    stranger = StaticMember(topic, "nobody", "one")
    conf = {"bootstrap.servers": kafka.bootstrap}
    assert not tell(conf, stranger, Deadline(10), leave=True)
    assert not tell(conf, stranger._replace(member_id=""), Deadline(10), leave=True)
    with pytest.raises(Failed, match="Connection refused"):
        tell({"bootstrap.servers": "127.0.0.1:1"}, stranger, Deadline(10), leave=True)
    with pytest.raises(Failed, match="SASL"):
        tell({**conf, "security.protocol": "sasl_ssl"}, stranger, Deadline(10), leave=True)


def test_a_function_that_tells_no_name_is_told_at_the_start(patient: KafkaServer, patient_topic: str) -> None:
    kafka, topic = patient, patient_topic

    def broken() -> str:
        raise KeyError("POD_NAME")

    for tells in (broken, lambda: "a pod"):
        source = KafkaSource({"bootstrap.servers": kafka.bootstrap, "group.id": topic}, static_id=tells)
        with pytest.raises(SettingError, match=r"^static_id="):
            source.open([topic], None, {}, Deadline(10))  # type: ignore[arg-type]
