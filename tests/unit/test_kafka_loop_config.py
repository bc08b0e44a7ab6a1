"""KafkaConsumer takes the configurations that the client takes, and refuses the others as the client does."""

from __future__ import annotations

import logging
import uuid
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from holdfast import Holdfast, Settings
from holdfast.adapters.kafka import KafkaConsumer, KafkaSource
from holdfast.adapters.kafka.config import check
from holdfast.errors import NotAuthorised, SettingError

#: No broker listens there: what is asked here is asked of nobody.
CONF: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
KEPT = {**CONF, "partition.assignment.strategy": "cooperative-sticky"}


@pytest.mark.parametrize(
    "name",
    [
        "group.instance.id",
        "partition.assignment.strategy",
        "group.protocol",
        "group.remote.assignor",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "metadata.broker.list",
        "client.id",
        "on_commit",
        "error_cb",
        "stats_cb",
        "logger",
    ],
)
def test_none_says_nothing(name: str) -> None:
    assert dict(check({**CONF, name: None}, None).conf) == CONF
    KafkaConsumer({**CONF, name: None}, claims=None).close()


def test_a_groups_name_is_any_value_that_has_a_text() -> None:
    name = uuid.UUID(int=5)
    with KafkaConsumer({**KEPT, "group.id": name}, claims=None) as consumer:
        assert str(name) in repr(consumer)
    assert check({**CONF, "group.id": name}, None).group == str(name)


def test_properties_of_topics_may_stand_apart_as_with_the_client() -> None:
    apart = {"auto.offset.reset": "earliest", "auto.commit.interval.ms": 5}
    with KafkaConsumer({**KEPT, "default.topic.config": apart}, claims=None) as consumer:
        assert "earliest" in repr(consumer)


def test_callbacks_may_be_keywords() -> None:
    KafkaConsumer(KEPT, claims=None, error_cb=print, logger=logging.getLogger("x"), on_commit=print).close()
    with KafkaConsumer(claims=None, bootstrap_servers="127.0.0.1:1", group_id="other", log_level=0) as consumer:
        assert "other" in repr(consumer)


@pytest.mark.parametrize(
    "wrong",
    [
        {"no.such.property": 1},
        {"sesion.timeout.ms": 6_000},
        {"session.timeout.ms": "long"},
        {"session.timeout.ms": 60_000, "max.poll.interval.ms": 6_000},
        {"enable.auto.commit": "perhaps"},
        {"auto.offset.reset": "middle"},
        {"group.protocol": "modern"},
        {"partition.assignment.strategy": "mine"},
        {"fetch.min.bytes": -1},
    ],
    ids=str,
)
def test_what_the_client_refuses_is_refused_by_its_own_exception(wrong: dict[str, Any]) -> None:
    with pytest.raises(KafkaException) as caught:
        KafkaConsumer({**CONF, **wrong}, claims=None)
    assert caught.value.args[0].code() == KafkaError._INVALID_ARG
    assert isinstance(caught.value, SettingError) or caught.value.__cause__ is not None


def test_what_holdfast_alone_refuses_is_both_and_names_the_page_of_differences() -> None:
    with pytest.raises(SettingError, match="rebalance_cb") as caught:
        KafkaConsumer({**CONF, "rebalance_cb": print}, claims=None)
    assert isinstance(caught.value, KafkaException)
    assert caught.value.docs == "docs/how-to/own-loop.md"
    assert caught.value.field == "rebalance_cb"


# ---- the drain between two polls


@pytest.mark.parametrize(("interval_ms", "drain_s"), [(6_000, 3.2), (12_000, 8.0), (12_001, 10.0), (300_000, 10.0)])
def test_a_drain_that_nobody_has_set_fits_between_two_polls(
    interval_ms: int, drain_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    conf = {**KEPT, "max.poll.interval.ms": interval_ms, "session.timeout.ms": 6_000}
    app = Holdfast(KafkaSource(conf), claims=None)
    KafkaConsumer(conf, claims=None).close()
    assert app.parts.fitted.drain_s == drain_s
    said = [each.getMessage() for each in caplog.records if "drain_timeout_s" in each.getMessage()]
    assert len(said) == (2 if drain_s < 10 else 0)
    assert all(f"waits {drain_s:g} s" in each and f"max.poll.interval.ms={interval_ms}" in each for each in said)


@pytest.mark.parametrize("drain_s", [10.0, 4.0])
def test_a_drain_that_was_set_by_hand_is_refused_where_it_does_not_fit(drain_s: float) -> None:
    conf = {**KEPT, "max.poll.interval.ms": 6_000, "session.timeout.ms": 6_000}
    with pytest.raises(SettingError, match="drain_timeout_s"):
        Holdfast(KafkaSource(conf), claims=None, settings=Settings(drain_timeout_s=drain_s))
    with pytest.raises(SettingError, match="drain_timeout_s"):
        KafkaConsumer(conf, claims=None, settings=Settings(drain_timeout_s=drain_s))


# ---- tokens


@pytest.mark.full  # the client waits ten seconds for a token
def test_a_token_that_cannot_be_had_is_the_clients_exception_and_says_why() -> None:
    def oauth_cb(_: str) -> None:
        raise ConnectionError("the token server is down")

    conf = {**KEPT, "security.protocol": "sasl_plaintext", "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": oauth_cb}
    with pytest.raises(KafkaException) as caught:
        KafkaConsumer(conf, claims=None)
    assert caught.value.args[0].code() == KafkaError.SASL_AUTHENTICATION_FAILED
    assert isinstance(caught.value.__cause__, NotAuthorised)
    assert "the token server is down" in str(caught.value.__cause__)
