"""`--app`: what the line does not say is what the application says; the environment stands behind both."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.cli.entry import parser
from holdfast.adapters.cli.from_app import take
from holdfast.adapters.cli.options import from_environment
from holdfast.errors import SettingError
from tests.cli.crew import Crew

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Here
    from tests.harness.servers.kafka import KafkaServer

    Read = Callable[..., dict[str, Any]]

KAFKA = """
from holdfast.adapters.kafka import KafkaSource
source = KafkaSource({"bootstrap.servers": "there:9092", "group.id": "billing", "sasl.password": "hush"})
"""
ROCKETMQ = """
from holdfast.adapters.rocketmq import RocketMQSource
from holdfast import Holdfast, RedisClaims, RedisCoordinator
store = RedisClaims.from_url("redis://there:6379/0")
login = {"access_key": "me", "secret_key": "hush"}
app = Holdfast(RocketMQSource("there:9876", "billing", coordinator=RedisCoordinator(store), **login), claims=store)
"""
REDIS = """
from holdfast import Holdfast, RedisClaims
app = Holdfast(source, claims=RedisClaims.from_url("redis://me:hush@there:6379/0", namespace="shop"))
"""
ROTATED = """
import redis
from holdfast import Holdfast, RedisClaims
class Rotated(redis.CredentialProvider):
    def get_credentials(self): ...
app = Holdfast(source, claims=RedisClaims.from_url("redis://there:6379/0", credential_provider=Rotated()))
"""
NONE = """
from holdfast import Holdfast
app = Holdfast(source, claims=None)
"""
HANDLER = """
@app.handler({topics!r}, dead_letter={letters!r}, name={letters!r})
def handle(record): ...
"""


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """The options of a line with `--app`, where the app is of this code."""
    for name in ("BOOTSTRAP", "NAMESRV", "REDIS", "GROUP"):
        monkeypatch.delenv(f"HOLDFAST_{name}", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def read(line: str, *code: str) -> dict[str, Any]:
        (tmp_path / "told_app.py").write_text("".join(code))
        sys.modules.pop("told_app", None)
        options = parser().parse_args([*shlex.split(line), "--app", "told_app:app", "--app-dir", str(tmp_path)])
        take(options)
        from_environment(options)
        return vars(options)

    return read


@pytest.fixture
def one() -> str:
    return HANDLER.format(topics="orders", letters="orders.dlq")


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        ("lag", {"group": "billing", "topic": [], "redis": None}),
        ("lag --group other", {"group": "other"}),
        ("plan --join 1", {"group": "billing"}),
        (
            "reset --to latest",
            {"group": "billing", "topic": "orders", "redis": "redis://me:hush@there:6379/0", "namespace": "shop"},
        ),
        ("reset --to latest --topic t --no-store", {"topic": "t", "redis": None, "no_store": True}),
        ("reset --to latest --redis redis://here --namespace n", {"redis": "redis://here", "namespace": "n"}),
        ("dead-letters list", {"topic": "orders.dlq", "origin": ["orders"]}),
        ("dead-letters replay", {"topic": "orders.dlq", "origin": ["orders"], "namespace": "shop"}),
        ("dead-letters replay --to elsewhere", {"origin": None, "to": "elsewhere"}),
        ("dead-letters replay --topic t.dlq", {"topic": "t.dlq", "origin": None}),
    ],
)
def test_what_a_line_does_not_say_is_the_app_s(read: Read, one: str, line: str, taken: dict[str, object]) -> None:
    options = read(line, KAFKA, REDIS, one)
    assert {name: options[name] for name in taken} == taken
    assert dict(options["broker"].kafka)["bootstrap.servers"] == "there:9092"
    assert dict(options["broker"].kafka)["sasl.password"] == "hush"
    assert "hush" not in repr(options["broker"])


def test_a_broker_that_the_line_names_is_the_only_one(read: Read, one: str) -> None:
    options = read("lag --bootstrap here:9092", KAFKA, REDIS, one)
    assert (options["broker"], options["bootstrap"], options["group"]) == (None, "here:9092", "billing")


def test_the_environment_stands_behind_the_app(read: Read, one: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("BOOTSTRAP", "here:9092"), ("GROUP", "other"), ("REDIS", "redis://here")):
        monkeypatch.setenv(f"HOLDFAST_{name}", value)
    options = read("reset --to latest", KAFKA, REDIS, one)
    assert (options["group"], options["bootstrap"], options["namespace"]) == ("billing", None, "shop")
    assert read("reset --to latest", KAFKA, ROTATED, one)["redis"] == "redis://here"  # no URL says all of it


def test_an_app_without_a_store_has_none(read: Read, one: str) -> None:
    assert read("reset --to latest", KAFKA, NONE, one)["no_store"]


def test_name_servers_and_credentials_of_rocketmq(read: Read) -> None:
    options = read("lag", ROCKETMQ)
    assert options["broker"].rocketmq == {"namesrv": "there:9876", "access_key": "me", "secret_key": "hush"}
    assert (options["group"], options["redis"]) == ("billing", "redis://there:6379/0")  # it knows the queues' owners


@pytest.mark.parametrize(
    ("line", "code", "why"),
    [
        ("reset --to latest", "", "told_app:app names no topic: name one"),
        ("dead-letters list", HANDLER.format(topics="a", letters=None), "names no dead letter topic: name one"),
        (
            "dead-letters list",
            HANDLER.format(topics="a", letters="a.dlq") + HANDLER.format(topics="b", letters="b.dlq"),
            "has several dead letter topics: name one of a.dlq, b.dlq",
        ),
        ("reset --to latest", HANDLER.format(topics=["a", "b"], letters="dlq"), "has several topics: name one of a, b"),
    ],
)
def test_what_an_app_cannot_tell_is_asked_for(read: Read, line: str, code: str, why: str) -> None:
    with pytest.raises(SettingError, match=why):
        read(line, KAFKA, NONE, code)


def test_without_an_app_what_is_missing_is_asked_for_as_before(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_GROUP", raising=False)
    assert "the following arguments are required: --group" in here("lag", code=2).stderr
    assert "MODULE:APP='nothing'" in here("lag", "--app", "nothing", code=2).stderr


def test_the_lag_of_an_app_is_that_of_its_group(kafka: KafkaServer, here: Here, tmp_path: Path) -> None:
    with Crew(kafka, here) as crew:
        kafka.create_topic(crew.topic, 1)
        crew.produce(10, 0)
        crew.join("till-1")
        crew.settled()
        crew.commit({0: 4}, by="till-1")
        code = (
            KAFKA.replace("there:9092", kafka.bootstrap)
            .replace("billing", crew.group)
            .replace(', "sasl.password": "hush"', "")
        )
        (tmp_path / "lag_app.py").write_text(code + NONE)
        told = here("lag", "--app", "lag_app:app", "--app-dir", tmp_path).stdout
        assert told == crew.tell("lag")
        assert "lag: 6 in 1 partition" in told


SHARE = """
from holdfast.adapters.kafka import ShareSource
source = ShareSource({"bootstrap.servers": "there:9092", "group.id": "billing", "max.poll.records": 5})
"""


@pytest.mark.parametrize("line", ["lag", "reset --to earliest", "plan"])
def test_a_share_group_has_no_offsets_that_these_tools_know(read: Read, line: str) -> None:
    with pytest.raises(SettingError, match=r"kafka-share-groups.sh --describe --group billing"):
        read(line, SHARE, REDIS, HANDLER.format(topics=["orders"], letters="dlq"))


def test_of_a_share_group_the_dead_letters_are_found(read: Read) -> None:
    found = read("dead-letters list", SHARE, REDIS, HANDLER.format(topics=["orders"], letters="dlq"))
    assert found["broker"].kafka == {"bootstrap.servers": "there:9092", "group.id": "billing"}
    assert found["topic"] == "dlq"
