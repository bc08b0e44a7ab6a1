"""What is emitted: times that fit or an error that names them, a reason for each key, text that its place can read."""

from __future__ import annotations

import re
from typing import Any

import pytest
from confluent_kafka import Consumer
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.cli.arguments import parse_properties
from holdfast.adapters.kafka.config import check
from holdfast.errors import SettingError
from holdfast.plugin import budget
from holdfast.tools.advice.doctor import Circumstances, Client, Severity, examine
from holdfast.tools.advice.emit import (
    KafkaBrokers,
    Sheet,
    Workload,
    as_properties,
    as_python,
    for_kafka,
    for_rocketmq,
    native,
)

OLD, NEW = KafkaBrokers.of_version("3.9"), KafkaBrokers.of_version("4.3.1")
WORK = Workload(handler_s=0.2, workers=4)
SECONDS = st.floats(0, 400).map(lambda number: round(number, 2))
WORKLOADS = st.builds(
    Workload,
    handler_s=SECONDS,
    workers=st.integers(1, 64),
    batch=st.none() | st.integers(1, 1_000),
    drain_s=SECONDS,
    polls_meanwhile=st.booleans(),
    patience_s=st.floats(5, 3_600).map(lambda number: round(number, 1)),
    restarts=st.sampled_from(["rolling", "crash"]),
    restart_s=st.floats(0.1, 2_000).map(lambda number: round(number, 1)),
    static_id=st.none() | st.just("pod-3"),
)


def tells_numbers(error: SettingError) -> None:
    assert re.search(r"\d.*: .*\d", str(error))


def sheets_of(workload: Workload, brokers: KafkaBrokers = NEW, **more: Any) -> dict[str, Sheet]:
    return {each.name: each for each in for_kafka(workload, brokers, **more)}


@given(WORKLOADS, st.sampled_from([OLD, NEW]))
def test_what_kafkas_clients_get_holds_every_rule_or_nothing_is_emitted(
    workload: Workload, brokers: KafkaBrokers
) -> None:
    try:
        sheets = sheets_of(workload, brokers)
    except SettingError as error:
        tells_numbers(error)
        return
    turn = workload.turn(500)
    for name in ("confluent-kafka", "java"):
        found: dict[str, Any] = sheets[name].settings
        assert budget.turn_fits(turn, found["max.poll.interval.ms"]) is None
        if brokers is OLD:
            session_ms = found["session.timeout.ms"]
            assert budget.heartbeat_fits(found["heartbeat.interval.ms"], session_ms) is None
            assert budget.session_below_poll(session_ms, found["max.poll.interval.ms"]) is None
        else:
            assert not {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"} & set(found)
            group: dict[str, Any] = sheets["kafka-group"].settings
            session_ms = group[budget.GROUP_SESSION]
            assert budget.heartbeat_fits(group[budget.GROUP_HEARTBEAT], session_ms) is None
        allowed = budget.SESSION_RANGE_MS if brokers is OLD else budget.GROUP_SESSION_RANGE_MS
        assert budget.session_allowed(session_ms, allowed) is None
        if workload.static_id is not None:
            assert budget.restart_fits(session_ms, workload.restart_s) is None
    # And KafkaSource has nothing against it, nor any warning.
    base = {"bootstrap.servers": "127.0.0.1:1", "group.id": "billing"}
    assert check({**base, **sheets["confluent-kafka"].settings}, "keep").findings == ()


@pytest.mark.parametrize(
    ("workload", "brokers", "field", "said"),
    [
        (Workload(handler_s=20, workers=4), OLD, "max.poll.interval.ms", "take at most 56 records a poll"),
        (Workload(handler_s=400, batch=1), NEW, "max.poll.interval.ms", "allow 412001 or more"),
        (Workload(handler_s=1, drain_s=299, polls_meanwhile=True), NEW, "max.poll.interval.ms", "drain for less than"),
        (Workload(handler_s=0.1, static_id="a", restart_s=60), NEW, "restart_s", "group.consumer.max.session"),
        (Workload(handler_s=0.1, static_id="a", restart_s=1_300), OLD, "restart_s", "group.max.session.timeout.ms"),
        (Workload(handler_s=0.1, static_id="a"), KafkaBrokers.of_version("2.2"), "static_id", "2.3"),
    ],
)
def test_what_cannot_fit_is_refused_with_the_times_and_what_to_change(
    workload: Workload, brokers: KafkaBrokers, field: str, said: str
) -> None:
    with pytest.raises(SettingError) as caught:
        for_kafka(workload, brokers)
    assert caught.value.field == field
    assert said in caught.value.remedy


def test_the_best_that_the_brokers_have_is_taken_and_no_eager_assignor_beside_it() -> None:
    assert sheets_of(WORK)["java"]["group.protocol"] == "consumer"
    assert sheets_of(WORK)["java"]["group.remote.assignor"] == "uniform"
    assert sheets_of(WORK, OLD)["confluent-kafka"]["partition.assignment.strategy"] == "cooperative-sticky"
    assert "kafka-group" not in sheets_of(WORK, OLD)
    assert "group.protocol" not in sheets_of(WORK, NEW, protocol="cooperative")["java"].settings
    with pytest.raises(SettingError, match="have no consumer protocol"):
        for_kafka(WORK, OLD, protocol="consumer")


@pytest.mark.parametrize("version", ["", "four", "4", "4.x", "0.10"])
def test_a_version_that_is_none_is_refused(version: str) -> None:
    with pytest.raises(SettingError, match="broker version"):
        KafkaBrokers.of_version(version)


def test_killed_members_are_noticed_sooner_and_restarts_are_outlasted() -> None:
    killed, static = Workload(handler_s=0.1, restarts="crash"), Workload(handler_s=0.1, static_id="a", restart_s=200)
    assert sheets_of(WORK, OLD)["java"]["session.timeout.ms"] == 45_000
    assert sheets_of(killed, OLD)["java"]["session.timeout.ms"] == 10_000
    found = sheets_of(static, OLD)["confluent-kafka"]
    assert (found["session.timeout.ms"], found["group.instance.id"]) == (300_000, "a")
    assert (
        sheets_of(Workload(handler_s=0.1, static_id="a", restart_s=50))["kafka-group"][budget.GROUP_SESSION] == 60_000
    )


@given(WORKLOADS)
def test_what_rocketmqs_clients_get_covers_a_call_or_nothing_is_emitted(workload: Workload) -> None:
    try:
        sheets = {each.name: each.settings for each in for_rocketmq(workload)}
    except SettingError as error:
        tells_numbers(error)
        return
    simple: dict[str, Any] = sheets["rocketmq-grpc-simple"]
    assert simple["invisible_duration"] > simple["max_message_num"] / workload.workers * workload.handler_s


def test_brokers_of_rocketmq_4_have_no_grpc() -> None:
    assert [each.name for each in for_rocketmq(WORK, "4.9.4")] == ["rocketmq-python"]
    with pytest.raises(SettingError, match="broker version"):
        for_rocketmq(WORK, "3.2")


@pytest.mark.parametrize("broken", [{"handler_s": -1}, {"workers": 0}, {"restart_s": 0}, {"static_id": "a b"},
                                    {"restarts": "never"}, {"patience_s": float("inf")}, {"batch": 0}])  # fmt: skip
def test_a_description_that_cannot_be_is_refused_by_name(broken: dict[str, Any]) -> None:
    with pytest.raises(SettingError) as caught:
        Workload(**{"handler_s": 1.0, **broken}).turn(1)
    assert caught.value.field in broken


@pytest.mark.parametrize("static_id", [None, "${POD_NAME}"])
@pytest.mark.parametrize("restarts", ["rolling", "crash"])
def test_the_doctor_finds_nothing_that_could_be_better(restarts: Any, static_id: str | None) -> None:
    workload = Workload(handler_s=0.2, workers=4, restarts=restarts, static_id=static_id)
    meant = Circumstances(handler_s=0.2, workers=4, batch=500, drain_s=10, restart_s=30)
    for brokers in (OLD, NEW):
        for name, client in (("confluent-kafka", Client.LIBRDKAFKA), ("java", Client.JAVA)):
            conf = {"bootstrap.servers": "a:1", "group.id": "billing", **sheets_of(workload, brokers)[name].settings}
            found = examine(conf, client=client, circumstances=meant)
            assert [each for each in found if each.severity is not Severity.NOTE] == []


# -- as text ----------------------------------------------------------------------------------------------------------

ALL = [
    *for_kafka(Workload(handler_s=0.2, static_id="${POD_NAME}"), NEW),
    *for_kafka(WORK, OLD),
    *for_rocketmq(Workload(handler_s=0.2, static_id="pod-3", restarts="crash")),
]
IDS = [f"{number}-{each.name}" for number, each in enumerate(ALL)]


@pytest.mark.parametrize("sheet", ALL, ids=IDS)
def test_each_key_stands_once_under_its_reason(sheet: Sheet) -> None:
    assert len(sheet.settings) == len(sheet.choices)
    for text in (native(sheet), as_properties(sheet), as_python(sheet)):
        said = " ".join(line.lstrip("#/ ") for line in text.splitlines())
        for key, value, why in sheet.choices:
            assert len(why) > 10
            assert why in said.replace("    # ", "")
            assert str(value).lower() in text.lower()
            assert key[1:] in text
        assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("sheet", ALL, ids=IDS)
def test_properties_and_python_are_read_back_as_what_was_meant(sheet: Sheet) -> None:
    read = parse_properties(as_properties(sheet), "x")
    assert read == {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in sheet.settings.items()
    }
    names: dict[str, Any] = {}
    exec(as_python(sheet), names)  # noqa: S102 - what is emitted is to be pasted into a program
    assert names[sheet.name.replace("-", "_")] == sheet.settings


def test_calls_are_written_as_the_client_has_them() -> None:
    [python, *_] = for_rocketmq(Workload(handler_s=0.2, workers=4, static_id="pod-3"))
    assert "consumer.set_thread_count(4)" in native(python).splitlines()
    assert 'consumer.set_instance_name("pod-3")' in native(python).splitlines()


@pytest.mark.parametrize("brokers", [OLD, NEW])
def test_librdkafka_makes_a_consumer_of_it(brokers: KafkaBrokers) -> None:
    conf = sheets_of(Workload(handler_s=0.2, static_id="pod-3"), brokers)["confluent-kafka"].settings
    Consumer({**conf, "bootstrap.servers": "127.0.0.1:1", "group.id": "billing", "log_level": 0}).close()
