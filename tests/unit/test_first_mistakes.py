"""First mistakes: one sentence that names what was written, and what to write instead."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
import traceback
from typing import Any

import pytest

from holdfast import Holdfast, MemoryClaims, RedisClaims
from holdfast.adapters.kafka import KafkaConsumer, KafkaSource
from holdfast.errors import SettingError, StoreUnavailable
from holdfast.plugin.events import StoreUp
from holdfast.testing import make_record

CONF = {"bootstrap.servers": "localhost:1", "group.id": "billing"}
LOOP: Any = KafkaConsumer


def test_a_record_is_no_dictionary() -> None:
    record: Any = make_record(topic="orders", value=b'{"amount": 1}')
    with pytest.raises(TypeError, match=r"record\.json\(\)\['amount'\]"):
        record["amount"]
    assert record[0] == record.partition


@pytest.mark.parametrize("argument", ["dead_letters", "retries", "topic_name"])
def test_an_argument_that_a_handler_does_not_take(argument: str) -> None:
    app: Any = Holdfast(KafkaSource(CONF), claims=MemoryClaims())
    with pytest.raises(SettingError, match=r"has no argument of that name: (did you mean|there are)") as caught:
        app.handler("orders", **{argument: "orders.dlq"})
    assert caught.value.field == argument


def test_a_source_or_a_password_in_the_wrong_place_is_not_shown() -> None:
    made: Any = Holdfast
    with pytest.raises(SettingError, match="has no argument of that name") as caught:
        made(KafkaSource(CONF), claims=None, pasword="geheim")  # noqa: S106 - it is none
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("make", [lambda: Holdfast(KafkaSource(CONF)), lambda: LOOP(CONF), lambda: LOOP(group_id="g")])  # type: ignore[call-arg]
def test_a_store_that_is_missing_says_which_there_are(make: Any) -> None:
    with pytest.raises(TypeError, match=r"claims= is missing: give RedisClaims\.from_url\(url\); .* None"):
        make()


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ("sesion.timeout.ms", r"did you mean session\.timeout\.ms\?"),
        ("session_timeout_ms", r"did you mean session\.timeout\.ms\?"),
        ("nothing.like.it.at.all", "check the spelling"),
    ],
)
def test_a_property_that_the_client_does_not_know_is_told_where_it_is_written(wrong: str, remedy: str) -> None:
    for make in (KafkaSource, lambda conf: LOOP(conf, claims=None)):
        with pytest.raises(SettingError, match=remedy) as caught:
            make({**CONF, wrong: 6000})
        assert caught.value.field == wrong


def test_the_value_of_a_misspelled_password_is_not_shown() -> None:
    with pytest.raises(SettingError) as caught:
        KafkaSource({**CONF, "sasl.pasword": "geheim"})
    assert "geheim" not in str(caught.value)


def test_names_with_underscores_are_told_by_the_clients_own() -> None:
    with pytest.raises(SettingError, match=r"group_id='billing': librdkafka calls it group\.id"):
        KafkaSource({"bootstrap.servers": "localhost:1", "group_id": "billing"})


def test_a_redis_that_is_away_is_told_without_the_stack_of_its_client() -> None:
    with pytest.raises(StoreUnavailable) as caught:
        RedisClaims.from_url("redis://localhost:1").connect()
    shown = "".join(traceback.format_exception(caught.value))
    assert "site-packages/redis" not in shown
    assert "redis.exceptions.ConnectionError: Error 111 connecting to localhost:1" in shown


def test_a_store_that_is_back_is_no_warning() -> None:
    assert StoreUp(down_s=1.0).level == logging.INFO


def test_a_process_that_ends_before_its_app_says_so() -> None:
    program = """
        import logging, sys
        from holdfast import Holdfast, MemoryClaims
        from holdfast.testing.brokers.kafka import MemoryBroker
        from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
        logging.basicConfig()
        app = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=MemoryClaims())
        app.handler("orders", name="bill")(print)
        app.start()
        if "stop" in sys.argv:
            app.stop(wait=True)
    """
    for argument in ("stop", "crash"):
        ended = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), argument],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert ("the process ends and the app of group g still runs" in ended.stderr) is (argument == "crash")
