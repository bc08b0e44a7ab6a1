"""Rules over configurations: each finds its trouble, and is silent where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.adapters.kafka.broker_features import BrokerFeatures
from holdfast.adapters.kafka.config import check
from holdfast.adapters.kafka.emission import emit
from holdfast.errors import SettingError
from holdfast.plugin.secret_names import is_secret
from holdfast.tools.advice.doctor import (
    CONF_RULES,
    Circumstances,
    Client,
    Effect,
    Severity,
    examine,
    not_judged,
    worst,
)
from holdfast.tools.advice.emit import KafkaBrokers, Workload, for_kafka
from holdfast.tools.advice.rules.conf import DEFAULTS, KNOWN, ClientConf, guess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.tools.advice.doctor import Finding

#: Nothing to be said about these.
LIBRDKAFKA: Mapping[str, object] = {
    "bootstrap.servers": "broker:9092",
    "group.id": "billing",
    "group.instance.id": "billing-0",
    "partition.assignment.strategy": "cooperative-sticky",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "queued.min.messages": 10_000,
    "fetch.queue.backoff.ms": 50,
}
CONSUMER: Mapping[str, object] = {
    **{name: value for name, value in LIBRDKAFKA.items() if name != "partition.assignment.strategy"},
    "group.protocol": "consumer",
    "group.remote.assignor": "uniform",
}
JAVA: Mapping[str, object] = {
    "bootstrap.servers": "broker:9092",
    "group.id": "billing",
    "group.instance.id": "billing-0",
    "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
    "value.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
    "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    "enable.auto.commit": "false",
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
}
ROCKETMQ: Mapping[str, object] = {
    "namesrvAddr": "10.0.0.1:9876",
    "consumerGroup": "billing",
    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
    "allocateMessageQueueStrategy": "com.shop.Sticky",
}
HEALTHY = {
    "librdkafka": (LIBRDKAFKA, Client.LIBRDKAFKA),
    "consumer protocol": (CONSUMER, Client.LIBRDKAFKA),
    "java": (JAVA, Client.JAVA),
    "rocketmq": (ROCKETMQ, Client.ROCKETMQ),
}

_JAVA_PACKAGE = "org.apache.kafka.clients.consumer"


class Case(NamedTuple):
    """A healthy configuration with something else in it. A value of None takes a name out."""

    healthy: str
    found: Mapping[str, object]
    #: Not found with these instead.
    silent: tuple[Mapping[str, object], ...]
    circumstances: Circumstances | None = None
    severity: Severity | None = None
    #: What the finding says.
    says: str = ""


CASES: list[tuple[str, Case]] = [
    (
        "bad-value",
        Case("librdkafka", {"session.timeout.ms": "46s"}, ({"session.timeout.ms": "46000 "}, {}), says="reads 46,"),
    ),
    ("bad-value", Case("java", {"enable.auto.commit": "no"}, ({"enable.auto.commit": "FALSE"},))),
    ("bad-value", Case("librdkafka", {"auto.offset.reset": "none"}, ({"auto.offset.reset": "ERROR"},))),
    ("bad-value", Case("java", {"auto.offset.reset": "error"}, ({"auto.offset.reset": "by_duration:PT1H"},))),
    ("bad-value", Case("rocketmq", {"messageModel": "CLUSTER"}, ({"messageModel": "CLUSTERING"},))),
    (
        "unknown-key",
        Case(
            "librdkafka",
            {"sesion.timeout.ms": 6000},
            ({"session.timeout.ms": 6000},),
            says="did you mean session.timeout.ms?",
        ),
    ),
    (
        "unknown-key",
        Case("librdkafka", {"fetch.max.wait.ms": 100}, ({"fetch.wait.max.ms": 100},), says="fetch.wait.max.ms here"),
    ),
    (
        "unknown-key",
        Case(
            "java",
            {"queued.min.messages": 1000},
            ({"max.poll.records": 10},),
            severity=Severity.WARNING,
            says="a setting of librdkafka",
        ),
    ),
    (
        "unknown-key",
        Case(
            "rocketmq",
            {"pullBatchSise": 16},
            ({"pull_batch_size": 16},),
            severity=Severity.WARNING,
            says="pullBatchSize",
        ),
    ),
    ("unknown-key", Case("rocketmq", {"lease_s": 16}, ({},), severity=Severity.NOTE, says="holdfast's own")),
    (
        "alias-clash",
        Case(
            "librdkafka",
            {"metadata.broker.list": "other:9092"},
            ({"metadata.broker.list": "broker:9092"}, {"metadata.broker.list": "a:1", "bootstrap.servers": None}),
        ),
    ),
    ("unused-key", Case("librdkafka", {"max.poll.records": 100}, ({},))),
    ("placeholder", Case("librdkafka", {"session.timeout.ms": "${SESSION}"}, ({"client.id": "${POD}"},))),
    ("group-missing", Case("librdkafka", {"group.id": None}, ({"group.id": "{{ group }}"},))),
    ("group-missing", Case("java", {"group.id": " "}, ({},))),
    ("group-missing", Case("rocketmq", {"consumerGroup": "DEFAULT_CONSUMER"}, ({},))),
    ("unknown-protocol", Case("librdkafka", {"group.protocol": "kip848"}, ({"group.protocol": "Classic"},))),
    *(
        ("classic-keys", Case("consumer protocol", {name: value}, ({"group.protocol": "classic", name: value},)))
        for name, value in (
            ("session.timeout.ms", 45_000),
            ("heartbeat.interval.ms", 3_000),
            ("partition.assignment.strategy", "cooperative-sticky"),
            ("group.protocol.type", "consumer"),
        )
    ),
    ("mixed-assignors", Case("librdkafka", {"partition.assignment.strategy": "cooperative-sticky,range"}, ({},))),
    (
        "mixed-assignors",
        Case(
            "java",
            {
                "partition.assignment.strategy": [
                    f"{_JAVA_PACKAGE}.RangeAssignor",
                    f"{_JAVA_PACKAGE}.CooperativeStickyAssignor",
                ]
            },
            ({}, {"partition.assignment.strategy": None}),
            severity=Severity.NOTE,
        ),
    ),
    (
        "unknown-assignor",
        Case(
            "librdkafka",
            {"partition.assignment.strategy": "sticky"},
            ({"partition.assignment.strategy": "range, roundrobin"},),
        ),
    ),
    (
        "unknown-assignor",
        Case(
            "java",
            {"partition.assignment.strategy": "range"},
            ({"partition.assignment.strategy": "com.shop.OurAssignor"},),
            says="RangeAssignor",
        ),
    ),
    (
        "unknown-remote-assignor",
        Case("consumer protocol", {"group.remote.assignor": "sticky"}, ({"group.remote.assignor": "range"}, {})),
    ),
    ("remote-assignor-unused", Case("librdkafka", {"group.remote.assignor": "uniform"}, ({},))),
    ("remote-assignor-unused", Case("java", {"group.remote.assignor": "uniform"}, ({},), severity=Severity.ERROR)),
    (
        "eager-assignor",
        Case(
            "librdkafka",
            {"partition.assignment.strategy": None},
            ({}, {"partition.assignment.strategy": "${STRATEGY}"}),
            says="range,roundrobin (the default)",
        ),
    ),
    ("eager-assignor", Case("librdkafka", {"partition.assignment.strategy": "roundrobin"}, ({},))),
    ("eager-assignor", Case("java", {"partition.assignment.strategy": None}, ({},))),
    (
        "eager-assignor",
        Case("java", {"partition.assignment.strategy": f"{_JAVA_PACKAGE}.StickyAssignor"}, ({},)),
    ),
    ("static-id-invalid", Case("java", {"group.instance.id": "pod 1"}, ({"group.instance.id": "pod-1.shop_a"},))),
    ("static-id-missing", Case("librdkafka", {"group.instance.id": None}, ({},))),
    (
        "session-refused",
        Case(
            "librdkafka",
            {"session.timeout.ms": 5_999, "heartbeat.interval.ms": 1_000},
            ({"session.timeout.ms": 6_000},),
        ),
    ),
    ("session-refused", Case("java", {"session.timeout.ms": 1_800_001}, ({"session.timeout.ms": 1_800_000},))),
    (
        "session-above-poll",
        Case("librdkafka", {"max.poll.interval.ms": 44_999}, ({"max.poll.interval.ms": 45_000},)),
    ),
    (
        "poll-interval-short",
        Case(
            "librdkafka",
            {},
            ({"max.poll.interval.ms": 600_000},),
            Circumstances(handler_s=0.6, batch=500),
            says="= 302 s",
        ),
    ),
    (
        "poll-interval-short",
        Case("java", {}, ({"max.poll.records": "490"},), Circumstances(handler_s=0.6), says="a batch of 500 records"),
    ),
    (
        "heartbeat-slow",
        Case("librdkafka", {"heartbeat.interval.ms": 15_001}, ({"heartbeat.interval.ms": 15_000},)),
    ),
    (
        "heartbeat-slow",
        Case("java", {"heartbeat.interval.ms": "45000"}, ({"heartbeat.interval.ms": "1"},), severity=Severity.ERROR),
    ),
    (
        "restart-outlasts-session",
        Case(
            "librdkafka",
            {},
            ({"session.timeout.ms": 60_001}, {"group.instance.id": None}),
            Circumstances(restart_s=60.0),
        ),
    ),
    (
        "restart-outlasts-session",
        Case(
            "consumer protocol",
            {},
            ({"group.instance.id": None},),
            Circumstances(restart_s=45.0),
            says="45000 (the default; a setting of the group at the broker",
        ),
    ),
    (
        "session-short",
        Case(
            "librdkafka",
            {"session.timeout.ms": 6_000, "group.instance.id": None},
            (
                {"session.timeout.ms": 10_000, "group.instance.id": None},
                {"session.timeout.ms": 9_000},  # of a static member: restart-outlasts-session tells
                {"session.timeout.ms": 5_000, "group.instance.id": None},  # session-refused tells
            ),
            says="6000",
        ),
    ),
    (
        "session-long",
        Case(
            "librdkafka",
            {"session.timeout.ms": 61_000, "group.instance.id": None},
            ({"session.timeout.ms": 60_000, "group.instance.id": None}, {"session.timeout.ms": 300_000}),
        ),
    ),
    (
        "session-long",
        Case(
            "java", {"session.timeout.ms": 200_000}, ({"session.timeout.ms": 180_000},), Circumstances(restart_s=90.0)
        ),
    ),
    ("poll-interval-long", Case("librdkafka", {"max.poll.interval.ms": 600_001}, ({"max.poll.interval.ms": 600_000},))),
    (
        "auto-commit",
        Case(
            "librdkafka",
            {"enable.auto.commit": None},
            ({}, {"enable.auto.commit": True, "enable.auto.offset.store": False}),
            says="true (the default)",
        ),
    ),
    ("auto-commit", Case("java", {"enable.auto.commit": "true"}, ({},))),
    (
        "commit-interval-long",
        Case(
            "librdkafka",
            {"enable.auto.commit": True, "auto.commit.interval.ms": 5_001},
            ({"enable.auto.commit": True}, {"auto.commit.interval.ms": 60_000}),
        ),
    ),
    (
        "read-uncommitted",
        Case("librdkafka", {"isolation.level": "read_uncommitted"}, ({}, {"isolation.level": "read_committed"})),
    ),
    ("read-uncommitted", Case("java", {"isolation.level": None}, ({},), severity=Severity.NOTE)),
    ("offset-reset-latest", Case("librdkafka", {"auto.offset.reset": None}, ({}, {"auto.offset.reset": "error"}))),
    ("offset-reset-latest", Case("java", {"auto.offset.reset": "latest"}, ({"auto.offset.reset": "none"},))),
    (
        "prefetch-large",
        Case("librdkafka", {"queued.min.messages": None}, ({"queued.min.messages": 10_000},)),
    ),
    (
        "fetch-backoff-long",
        Case(
            "librdkafka",
            {"fetch.queue.backoff.ms": None},
            ({"queued.min.messages": 100_000, "fetch.queue.backoff.ms": 1000},),
        ),
    ),
    (
        "metadata-late",
        Case(
            "librdkafka",
            {"topic.metadata.refresh.interval.ms": -1},
            ({"topic.metadata.refresh.interval.ms": 300_000},),
            says="never",
        ),
    ),
    ("metadata-late", Case("java", {"metadata.max.age.ms": 3_600_000}, ({"metadata.max.age.ms": 1_000},))),
    (
        "rocketmq-out-of-range",
        Case("rocketmq", {"pullInterval": 70_000}, ({"pullInterval": 0}, {"pullThresholdForTopic": -1})),
    ),
    (
        "rocketmq-threads",
        Case("rocketmq", {"consumeThreadMin": 64}, ({"consumeThreadMin": 64, "consumeThreadMax": 64},)),
    ),
    (
        "rocketmq-consume-timeout",
        Case(
            "rocketmq",
            {"consumeMessageBatchMaxSize": 30},
            ({"consumeMessageBatchMaxSize": 29}, {"consumeMessageBatchMaxSize": 30, "consumeTimeout": 16}),
            Circumstances(handler_s=30.0),
        ),
    ),
    ("rocketmq-namesrv-missing", Case("rocketmq", {"namesrvAddr": None}, ({"namesrvAddr": "${NAMESRV}"}, {}))),
    (
        "rocketmq-from-last",
        Case("rocketmq", {"consumeFromWhere": None}, ({}, {"consumeFromWhere": "CONSUME_FROM_TIMESTAMP"})),
    ),
    (
        "rocketmq-strategy",
        Case(
            "rocketmq",
            {"allocateMessageQueueStrategy": None},
            ({"allocateMessageQueueStrategy": "rebalance.AllocateMessageQueueByConfig"},),
            says="the default",
        ),
    ),
    (
        "rocketmq-strategy",
        Case(
            "rocketmq", {"allocateMessageQueueStrategy": "a.AllocateMessageQueueConsistentHash"}, ({},), says="by hash"
        ),
    ),
    (
        "rocketmq-instance-name",
        Case("rocketmq", {"instanceName": "billing"}, ({"instanceName": "DEFAULT"}, {"instanceName": "${POD}"})),
    ),
    (
        "rocketmq-heartbeat",
        Case("rocketmq", {"heartbeatBrokerInterval": 40_001}, ({"heartbeatBrokerInterval": 40_000},)),
    ),
    (
        "rocketmq-heartbeat",
        Case("rocketmq", {"heartbeat_broker_interval": 120_000}, ({},), severity=Severity.ERROR),
    ),
    ("rocketmq-broadcasting", Case("rocketmq", {"messageModel": "BROADCASTING"}, ({},))),
    (
        "rocketmq-persist-interval",
        Case("rocketmq", {"persistConsumerOffsetInterval": 30_000}, ({"persistConsumerOffsetInterval": 1_000},)),
    ),
    ("rocketmq-no-retry", Case("rocketmq", {"maxReconsumeTimes": 0}, ({"maxReconsumeTimes": 3}, {}))),
    ("rocketmq-batch", Case("rocketmq", {"consumeMessageBatchMaxSize": 2}, ({},))),
    ("rocketmq-pull-batch", Case("rocketmq", {"pullBatchSize": 64}, ({"pullBatchSize": 32},))),
    ("rocketmq-routes", Case("rocketmq", {"pollNameServerInterval": 60_001}, ({"pollNameServerInterval": 60_000},))),
]


def _found(case: Case, change: Mapping[str, object]) -> list[Finding]:
    healthy, client = HEALTHY[case.healthy]
    return examine({**healthy, **change}, client=client, circumstances=case.circumstances)


@pytest.mark.parametrize(("rule", "case"), CASES, ids=[f"{rule}-{case.healthy}" for rule, case in CASES])
def test_a_rule_finds_its_trouble_and_nothing_else_does(rule: str, case: Case) -> None:
    found = {each.rule: each for each in _found(case, case.found)}
    assert rule in found
    [row] = [each for each in CONF_RULES if each.name == rule]
    assert found[rule].severity is (case.severity or row.severity)
    assert case.says in f"{found[rule].found} {found[rule].why} {found[rule].remedy}"


@pytest.mark.parametrize(("rule", "case"), CASES, ids=[f"{rule}-{case.healthy}" for rule, case in CASES])
def test_a_rule_is_silent_where_there_is_no_trouble(rule: str, case: Case) -> None:
    for change in case.silent:
        assert rule not in {each.rule for each in _found(case, change)}, change


def test_each_rule_is_shown_both_ways() -> None:
    shown = {rule for rule, case in CASES if case.silent}
    assert shown == {rule.name for rule in CONF_RULES}
    assert len(CONF_RULES) == len({rule.name for rule in CONF_RULES})


@pytest.mark.parametrize("name", HEALTHY)
def test_of_a_healthy_configuration_nothing_is_said(name: str) -> None:
    conf, client = HEALTHY[name]
    assert examine(conf, client=client) == []
    assert guess(conf) is client


@pytest.mark.parametrize(
    "conf",
    [
        {"group.id": "g", "partition.assignment.strategy": "org.apache.kafka.clients.consumer.StickyAssignor"},
        {"group.id": "g", "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required;"},
        {"group.id": "g", "interceptor.classes": ["org.apache.kafka.x.Y"]},
        {"value.deserializer": "io.confluent.kafka.serializers.KafkaAvroDeserializer"},
    ],
)
def test_a_class_of_javas_in_a_value_says_whose_configuration_it_is(conf: Mapping[str, object]) -> None:
    assert guess(conf) is Client.JAVA
    assert not [each for each in examine(conf) if each.rule in ("unknown-assignor", "unknown-key")]


def test_what_was_not_judged_for_want_of_the_handlers_time_is_named() -> None:
    for conf, rules in ((LIBRDKAFKA, ["poll-interval-short"]), (ROCKETMQ, ["rocketmq-consume-timeout"])):
        assert [rule.name for rule in not_judged(ClientConf(conf))] == rules
        assert not not_judged(ClientConf(conf, circumstances=Circumstances(handler_s=1.0)))
    assert not not_judged(ClientConf(CONSUMER, client=Client.HOLDFAST))  # it polls meanwhile


def test_of_nothing_at_all_the_defaults_are_told() -> None:
    found = {each.rule for each in examine({"bootstrap.servers": "broker:9092", "group.id": "billing"})}
    assert {"eager-assignor", "auto-commit", "offset-reset-latest", "static-id-missing"} <= found


def test_the_worst_comes_first_and_says_how_bad_it_is() -> None:
    found = examine({"group.id": "billing", "nonsense": 1})
    assert [each.severity.rank for each in found] == sorted((each.severity.rank for each in found), reverse=True)
    assert worst(found) is Severity.ERROR
    assert worst([]) is None


# -- credentials -------------------------------------------------------------------------------------------------------

SECRETS = {
    "sasl.password": "hunter2",
    "sasl.pasword": "hunter2",  # misspelled: nobody knows that it is one
    "ssl.key.pem": "hunter2",
    "sasl.jaas.config": "password=hunter2;",
    "secretKey": "hunter2",
    "access_key": "hunter2",
}


@pytest.mark.parametrize("client", Client)
def test_no_credential_is_ever_shown(client: Client) -> None:
    found = examine({"group.id": "billing", **SECRETS}, client=client)
    assert found
    assert "hunter2" not in repr(found)
    assert "hunter2" not in repr(ClientConf(SECRETS, client=client))


@example(name="POP_INVISIBLE_TIME", value="1000000000")  # RocketMQ's names are known however they are written
@given(name=st.text(min_size=1, max_size=20), value=st.integers(10**9, 10**12).map(str))
def test_no_value_of_an_unknown_name_is_ever_shown(name: str, value: str) -> None:
    for client in Client:
        if KNOWN[client].isdisjoint(ClientConf({name: value}, client=client).names):  # in no spelling
            found = [each.as_dict() for each in examine({name: value}, client=client) if name in each.where]
            assert value not in repr(found)


@given(
    conf=st.dictionaries(
        st.sampled_from(sorted(set().union(*KNOWN.values()))),
        st.one_of(st.text(max_size=8), st.integers(-5, 10**9), st.booleans(), st.none(), st.just(print)),
        max_size=12,
    ),
    client=st.sampled_from([*Client, None]),
    handler_s=st.one_of(st.none(), st.floats(0, 1e6)),
)
def test_any_configuration_is_judged(conf: dict[str, object], client: Client | None, handler_s: float | None) -> None:
    """Whatever stands in it: no rule fails."""
    for each in examine(conf, client=client, circumstances=Circumstances(handler_s=handler_s)):
        assert all(each.as_dict().values())


def test_circumstances_that_cannot_be_are_refused() -> None:
    with pytest.raises(SettingError, match="restart_s"):
        Circumstances(restart_s=0)
    with pytest.raises(SettingError, match="handler_s"):
        examine(LIBRDKAFKA, circumstances=Circumstances(handler_s=-1))


# -- what clients really do --------------------------------------------------------------------------------------------


def _client_refuses(conf: Mapping[str, object]) -> bool:
    try:
        Consumer({**conf, "log_level": 0}).close()
    except (KafkaException, ValueError):
        return True
    return False


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        (rule, change)
        for rule, case in CASES
        if case.healthy in ("librdkafka", "consumer protocol") and rule != "placeholder"
        for change in (case.found, *case.silent)
        if "${" not in str(change) and "{{" not in str(change)
    ],
)
def test_no_start_is_said_where_the_real_client_refuses(rule: str, change: Mapping[str, object]) -> None:
    for healthy in (LIBRDKAFKA, CONSUMER):
        conf = {name: value for name, value in {**healthy, **change}.items() if value is not None}
        found = examine(conf, client=Client.LIBRDKAFKA)
        said = [each for each in found if each.effect is Effect.REFUSED and each.severity is Severity.ERROR]
        # 46s is 46 ms to librdkafka: that is an error of another kind.
        assert bool(said) == _client_refuses(conf) or {each.rule for each in said} == {"bad-value"}, said


def test_holdfast_s_defaults_are_those_of_its_source() -> None:
    made = emit(
        check({"bootstrap.servers": "broker:9092", "group.id": "billing"}, "keep"),
        BrokerFeatures(consumer_protocol=False, why="a test"),
    )
    for name, value in made.conf.items():
        if name in DEFAULTS[Client.HOLDFAST]:
            assert DEFAULTS[Client.HOLDFAST][name] == str(value).lower()
    for name in DEFAULTS[Client.HOLDFAST].keys() - made.conf.keys():
        assert DEFAULTS[Client.HOLDFAST][name] == DEFAULTS[Client.LIBRDKAFKA][name]


def test_what_holdfast_sets_by_itself_is_no_trouble() -> None:
    found = examine({"bootstrap.servers": "broker:9092", "group.id": "billing"}, client=Client.HOLDFAST)
    assert {each.rule for each in found} == {"static-id-missing"}
    assert not is_secret("bootstrap.servers")


@pytest.mark.parametrize("version", ["3.9", "4.1"])
@pytest.mark.parametrize(
    "workload",
    [
        Workload(handler_s=0.2, workers=8, restart_s=40.0, static_id="${POD_NAME}"),
        Workload(handler_s=2.0, batch=50),
        Workload(handler_s=30.0, workers=4, polls_meanwhile=True, restarts="crash"),
    ],
)
def test_what_holdfast_emits_is_healthy(workload: Workload, version: str) -> None:
    """The same arithmetic on both sides."""
    told = Circumstances(
        handler_s=workload.handler_s,
        batch=workload.batch,
        workers=workload.workers,
        drain_s=workload.drain_s,
        polls_meanwhile=workload.polls_meanwhile,
        restart_s=workload.restart_s,
    )
    sheets = {each.name: each.settings for each in for_kafka(workload, KafkaBrokers.of_version(version))}
    for name, client in (("confluent-kafka", Client.LIBRDKAFKA), ("java", Client.JAVA)):
        found = examine({**sheets[name], "group.id": "billing"}, client=client, circumstances=told)
        assert worst(found) in (None, Severity.NOTE), found
