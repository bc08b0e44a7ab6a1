"""The consumer's configuration: what is refused, what is warned of, what is emitted and why."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.kafka.broker_features import BrokerFeatures
from holdfast.adapters.kafka.config import GroupProtocol, check, check_drain
from holdfast.adapters.kafka.emission import ClientConfig, emit, needs_answer
from holdfast.adapters.kafka.properties import as_bool, as_int, for_helpers
from holdfast.errors import SettingError
from holdfast.plugin.budget import COMMIT_S
from holdfast.plugin.secret_names import is_secret, masked
from holdfast.tools.advice.rules.conf import KNOWN

if TYPE_CHECKING:
    from holdfast.adapters.kafka.config import Assignment

BASE = {"bootstrap.servers": "127.0.0.1:1", "group.id": "billing"}
CAN = BrokerFeatures(consumer_protocol=True, why="the broker has it")
CANNOT = BrokerFeatures(consumer_protocol=False, why="the broker is older")
UNKNOWN = BrokerFeatures(consumer_protocol=False, why="nobody knows", asked=False)


def emitted(assignment: Assignment | None, features: BrokerFeatures, **more: object) -> ClientConfig:
    return emit(check({**BASE, **named(more)}, assignment), features)


def named(more: dict[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in more.items()}


REFUSED = [
    ("bootstrap.servers", {"bootstrap.servers": ""}),
    ("bootstrap.servers", {"bootstrap.servers": None}),
    ("group.id", {"group.id": " "}),
    ("group.instance.id", {"group.instance.id": ""}),
    ("metadata.broker.list", {"metadata.broker.list": "elsewhere:9092"}),
    ("enable.auto.commit", {"enable.auto.commit": True}),
    ("enable.auto.commit", {"enable.auto.commit": "TRUE"}),
    ("enable.auto.commit", {"enable.auto.commit": "perhaps"}),
    ("auto.commit.enable", {"auto.commit.enable": 1}),
    ("enable.auto.offset.store", {"enable.auto.offset.store": "true"}),
    ("default.topic.config", {"default.topic.config": {"auto.offset.reset": "latest"}}),
    ("on_commit", {"on_commit": print}),
    ("rebalance_cb", {"rebalance_cb": print}),
    ("offset.store.method", {"offset.store.method": "file"}),
    ("session.timeout.ms", {"session.timeout.ms": "long"}),
    ("session.timeout.ms", {"session.timeout.ms": 0}),
    ("heartbeat.interval.ms", {"heartbeat.interval.ms": 15_001}),
    ("heartbeat.interval.ms", {"heartbeat.interval.ms": 0}),
    ("heartbeat.interval.ms", {"heartbeat.interval.ms": "2001", "session.timeout.ms": "6000"}),
    ("max.poll.interval.ms", {"max.poll.interval.ms": 44_999}),
    ("max.poll.interval.ms", {"session.timeout.ms": 300_001}),
    ("max.poll.interval.ms", {"group.protocol": "consumer", "max.poll.interval.ms": 0}),
    ("partition.assignment.strategy", {"partition.assignment.strategy": "cooperative-sticky,range"}),
    ("partition.assignment.strategy", {"partition.assignment.strategy": "sticky"}),
    ("group.protocol", {"group.protocol": "modern"}),
    ("session.timeout.ms", {"group.protocol": "consumer", "session.timeout.ms": 10_000}),
    ("heartbeat.interval.ms", {"group.protocol": "Consumer", "heartbeat.interval.ms": 1_000}),
    ("partition.assignment.strategy", {"group.protocol": "consumer", "partition.assignment.strategy": "range"}),
    ("group.protocol.type", {"group.protocol": "consumer", "group.protocol.type": "consumer"}),
]


@pytest.mark.parametrize(
    ("field", "conf"), REFUSED, ids=[f"{field}-{number}" for number, (field, _) in enumerate(REFUSED)]
)
def test_what_contradicts_the_promise_is_refused_by_name_with_a_remedy(field: str, conf: dict[str, object]) -> None:
    with pytest.raises(SettingError) as caught:
        check({**BASE, **conf}, None)
    assert caught.value.field == field
    assert len(caught.value.remedy) > 10


@pytest.mark.parametrize("missing", ["bootstrap.servers", "group.id"])
def test_a_configuration_without_brokers_or_group_is_refused(missing: str) -> None:
    with pytest.raises(SettingError) as caught:
        check({name: value for name, value in BASE.items() if name != missing}, "keep")
    assert caught.value.field == missing


@pytest.mark.parametrize(
    ("field", "conf"),
    [
        ("partition.assignment.strategy", {"partition.assignment.strategy": "cooperative-sticky"}),
        ("group.protocol", {"group.protocol": "classic"}),
        ("group.remote.assignor", {"group.remote.assignor": "range"}),
    ],
)
def test_sticky_and_a_choice_of_ones_own_contradict_each_other(field: str, conf: dict[str, object]) -> None:
    check({**BASE, **conf}, "keep")
    with pytest.raises(SettingError) as caught:
        check({**BASE, **conf}, "sticky")
    assert caught.value.field == field


def test_an_unknown_assignment_is_refused() -> None:
    with pytest.raises(SettingError, match="assignment='eager'"):
        check(BASE, "eager")  # type: ignore[arg-type]


def test_a_good_configuration_has_no_findings() -> None:
    conf = {**BASE, "session.timeout.ms": 30_000, "heartbeat.interval.ms": 10_000, "max.poll.interval.ms": 30_000}
    assert check(conf, "sticky").findings == ()
    assert check({**BASE, "enable.auto.commit": "false", "enable.auto.offset.store": False}, "keep").findings == ()
    assert check({**BASE, "group.protocol": "consumer"}, None).findings == ()


def test_nothing_said_about_assignment_is_warned_of_with_the_reason() -> None:
    [finding] = check(BASE, None).findings
    assert finding.field == "partition.assignment.strategy"
    assert finding.value is None
    assert "stops the whole group" in str(finding)


@pytest.mark.parametrize("said", ["range", "range,roundrobin", "cooperative-sticky"])
def test_a_strategy_that_the_user_chose_is_not_warned_of(said: str) -> None:
    assert check({**BASE, "partition.assignment.strategy": said}, None).findings == ()


def test_a_session_that_brokers_usually_refuse_is_warned_of() -> None:
    [finding] = check({**BASE, "session.timeout.ms": 5_999}, "sticky").findings
    assert finding.field == "session.timeout.ms"
    assert check({**BASE, "session.timeout.ms": 6_000}, "sticky").findings == ()


def test_a_remote_assignor_without_its_protocol_is_warned_of() -> None:
    [finding] = check({**BASE, "group.remote.assignor": "uniform"}, "keep").findings
    assert finding.field == "group.remote.assignor"


def test_the_users_configuration_is_copied() -> None:
    mine: dict[str, object] = dict(BASE)
    checked = check(mine, "keep")
    mine["group.id"] = "other"
    assert checked.group == "billing"
    with pytest.raises(TypeError):
        checked.conf["group.id"] = "other"  # type: ignore[index]


def test_the_old_name_of_the_brokers_is_understood() -> None:
    conf: dict[str, object] = {"metadata.broker.list": "broker:9092", "group.id": "billing"}
    assert check(conf, "keep").bootstrap == "broker:9092"


# -- the drain --------------------------------------------------------------------------------------------------------


def test_a_drain_has_to_end_before_the_client_counts_as_stuck() -> None:
    checked = check({**BASE, "max.poll.interval.ms": 60_000}, "keep")
    longest_s = 60 - COMMIT_S
    check_drain(checked, longest_s - 0.001)
    with pytest.raises(SettingError) as caught:
        check_drain(checked, longest_s)
    assert caught.value.field == "drain_timeout_s"
    assert "60000" in caught.value.remedy
    assert f"less than {longest_s:g} s" in caught.value.remedy


def test_the_default_of_the_client_counts_where_the_user_says_nothing() -> None:
    check_drain(check(BASE, "keep"), 297.9)
    with pytest.raises(SettingError):
        check_drain(check(BASE, "keep"), 298)


# -- what is emitted --------------------------------------------------------------------------------------------------


def test_sticky_takes_the_consumer_protocol_where_the_broker_has_it() -> None:
    config = emitted("sticky", CAN)
    assert config.protocol is GroupProtocol.CONSUMER
    assert config.conf["group.protocol"] == "consumer"
    assert config.conf["group.remote.assignor"] == "uniform"
    assert "partition.assignment.strategy" not in config.conf
    assert config.session_timeout_s is None


def test_sticky_takes_cooperative_sticky_alone_elsewhere() -> None:
    config = emitted("sticky", CANNOT)
    assert config.protocol is GroupProtocol.COOPERATIVE
    assert config.conf["partition.assignment.strategy"] == "cooperative-sticky"
    assert "group.protocol" not in config.conf
    assert config.session_timeout_s == 45
    assert config.findings == ()


def test_a_broker_that_could_not_be_asked_gets_what_every_broker_has_and_that_is_told() -> None:
    config = emitted("sticky", UNKNOWN)
    assert config.protocol is GroupProtocol.COOPERATIVE
    assert "nobody knows" in str(config.findings[0])


def test_what_the_consumer_protocol_does_not_know_is_left_out_and_told() -> None:
    config = emitted("sticky", CAN, session_timeout_ms=30_000, heartbeat_interval_ms=3_000)
    for name in ("session.timeout.ms", "heartbeat.interval.ms"):
        assert name not in config.conf
        assert [reason.value for reason in config.reasons if reason.key == name] == [None]
        assert [finding.field for finding in config.findings].count(name) == 1


def test_the_same_is_kept_where_the_group_is_classic() -> None:
    config = emitted("sticky", CANNOT, session_timeout_ms="30000", heartbeat_interval_ms=3_000)
    assert config.conf["session.timeout.ms"] == "30000"
    assert config.session_timeout_s == 30
    assert config.findings == ()


@pytest.mark.parametrize("assignment", ["sticky", "keep", None])
def test_a_demand_that_the_broker_cannot_meet_is_refused_instead_of_never_joining(
    assignment: Assignment | None,
) -> None:
    checked = check({**BASE, "group.protocol": "consumer"}, assignment)
    assert needs_answer(checked)
    with pytest.raises(SettingError, match="the broker is older"):
        emit(checked, CANNOT)
    assert emit(checked, CAN).protocol is GroupProtocol.CONSUMER
    assert emit(checked, UNKNOWN).protocol is GroupProtocol.CONSUMER


def test_the_broker_need_not_be_asked_where_nothing_depends_on_it() -> None:
    assert needs_answer(check(BASE, "sticky"))
    assert not needs_answer(check(BASE, "keep"))
    assert not needs_answer(check({**BASE, "group.protocol": "classic"}, None))


@pytest.mark.parametrize(
    ("strategy", "protocol"),
    [
        ("range", GroupProtocol.EAGER),
        ("roundrobin,range", GroupProtocol.EAGER),
        ("cooperative-sticky", GroupProtocol.COOPERATIVE),
    ],
)
def test_keep_leaves_the_assignment_as_it_is(strategy: str, protocol: GroupProtocol) -> None:
    config = emitted("keep", CAN, partition_assignment_strategy=strategy)
    assert config.protocol is protocol
    assert config.conf["partition.assignment.strategy"] == strategy
    assert "group.protocol" not in config.conf


def test_keep_with_nothing_said_is_the_clients_default() -> None:
    config = emitted("keep", CAN)
    assert config.protocol is GroupProtocol.EAGER
    assert "partition.assignment.strategy" not in config.conf


def test_what_the_user_says_passes_through_unchanged() -> None:
    said: dict[str, object] = {
        "auto.offset.reset": "latest",
        "queued.min.messages": 7,
        "queued.max.messages.kbytes": "1024",
        "fetch.queue.backoff.ms": 1,
        "client.id": "me",
        "a.property.of.tomorrow": "x",
        "stats_cb": print,
    }
    config = emit(check({**BASE, **said}, "keep"), CAN)
    assert {name: config.conf[name] for name in said} == said
    assert not {reason.key for reason in config.reasons} & set(said)


def test_where_the_user_says_nothing_no_record_is_skipped_and_no_offset_committed_by_the_client() -> None:
    conf = emitted("keep", CAN).conf
    assert conf["auto.offset.reset"] == "earliest"
    assert conf["enable.auto.commit"] is False
    assert conf["enable.auto.offset.store"] is False


@pytest.mark.parametrize("features", [CAN, CANNOT, UNKNOWN])
@pytest.mark.parametrize("assignment", ["sticky", "keep", None])
def test_every_key_that_was_not_the_users_has_its_reason(
    assignment: Assignment | None, features: BrokerFeatures
) -> None:
    config = emitted(assignment, features, session_timeout_ms=6_000)
    explained = {reason.key for reason in config.reasons if reason.value is not None}
    assert explained == set(config.conf) - set(BASE) - {"session.timeout.ms"}
    assert all(len(reason.why) > 10 for reason in config.reasons)


def test_a_short_session_gets_more_heartbeats_than_the_default() -> None:
    assert emitted("sticky", CANNOT, session_timeout_ms=6_000).conf["heartbeat.interval.ms"] == 2_000
    assert "heartbeat.interval.ms" not in emitted("sticky", CANNOT, session_timeout_ms=9_000).conf
    assert "heartbeat.interval.ms" not in emitted("sticky", CAN, session_timeout_ms=6_000).conf


def test_the_users_error_callback_is_handed_over_for_the_source_to_call() -> None:
    config = emit(check({**BASE, "error_cb": print}, "keep"), CAN)
    assert config.error_cb is print
    assert "error_cb" not in config.conf
    with pytest.raises(SettingError, match="error_cb"):
        emit(check({**BASE, "error_cb": "print"}, "keep"), CAN)


def test_static_membership_is_told() -> None:
    assert emitted("keep", CAN).static_id is None
    assert emitted("keep", CAN, group_instance_id="pod-3").static_id == "pod-3"


@pytest.mark.parametrize(
    ("assignment", "features", "more"),
    [
        ("sticky", CAN, {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}),
        ("sticky", CAN, {"group.protocol": "consumer"}),
        ("sticky", CANNOT, {"session.timeout.ms": 6_000, "group.remote.assignor": "uniform"}),
        ("sticky", UNKNOWN, {"max.poll.interval.ms": 45_000, "group.instance.id": "pod-3"}),
        (
            "keep",
            CAN,
            {"partition.assignment.strategy": "roundrobin", "stats_cb": print, "statistics.interval.ms": 1000},
        ),
        (None, CAN, {"isolation.level": "read_uncommitted"}),
    ],
)
def test_the_client_takes_what_is_emitted(
    assignment: Assignment, features: BrokerFeatures, more: dict[str, Any]
) -> None:
    config = emit(check({**BASE, **more}, assignment), features)
    # It is made, and never reaches a broker: all that librdkafka has to say against a configuration it says here.
    Consumer({**config.conf, "log_level": 0}).close()


# -- secrets ----------------------------------------------------------------------------------------------------------

SECRETS = [
    "sasl.password",
    "ssl.key.password",
    "ssl.keystore.password",
    "ssl.key.pem",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.config",
    "sasl.kerberos.kinit.cmd",
    "sasl.pasword",
    "sasl.passwrod",
    "sasl.pass",
    "SASL_PWD",
    "ssl.key.pass word",
    "sasl.oauthbearer.client.secert",
    # Of a schema registry, which the file of a cloud has beside the brokers' own.
    "basic.auth.user.info",
    "schema.registry.basic.auth.user.info",
    "bearer.auth.token",
]


@pytest.mark.parametrize("name", SECRETS)
def test_a_credential_is_in_no_repr(name: str) -> None:
    conf = {**BASE, name: "hunter2"}
    checked = check(conf, None)
    config = emit(checked, CAN)
    shown = [repr(checked), repr(config), str(masked(conf)), *map(str, config.reasons), *map(str, config.findings)]
    assert "hunter2" not in " ".join(shown)
    assert "billing" in repr(checked)
    assert config.conf[name] == "hunter2"


def test_of_the_names_that_clients_know_only_those_of_secrets_are_masked() -> None:
    known = {name for names in KNOWN.values() for name in names}
    of_secrets = r"passw|secret|\.pem$|jaas|keystore\.key|kinit|oauthbearer\.(config|assertion)|_key|access|token"
    assert {name for name in known if is_secret(name) and not re.search(of_secrets, name, re.IGNORECASE)} == set()


@pytest.mark.parametrize("name", ["sasl.username", "ssl.ca.location", "group.id", "client.id", "ssl.key.location"])
def test_what_is_no_credential_is_shown(name: str) -> None:
    assert not is_secret(name)


def test_helpers_get_what_reaches_the_brokers_and_nothing_of_this_consumers_own() -> None:
    conf = {**BASE, "sasl.password": "hunter2", "security.protocol": "sasl_ssl", "oauth_cb": print, "new.property": "x"}
    own = {"session.timeout.ms": 1, "error_cb": print, "stats_cb": print, "statistics.interval.ms": 1}
    assert for_helpers({**conf, **own}) == {name: value for name, value in conf.items() if name != "group.id"}


# -- values -----------------------------------------------------------------------------------------------------------


@given(st.integers(min_value=-(2**31), max_value=2**31 - 1))
def test_a_number_is_read_as_itself_and_as_text(number: int) -> None:
    assert as_int("n", number) == as_int("n", f" {number} ") == number


@given(st.text(max_size=8))
def test_any_text_is_a_flag_or_is_refused_by_name(text: str) -> None:
    readable = text.strip().lower() in {"true", "t", "1", "false", "f", "0"}
    if readable:
        assert as_bool("f", text) is (text.strip().lower() in {"true", "t", "1"})
    else:
        with pytest.raises(SettingError, match="f="):
            as_bool("f", text)
