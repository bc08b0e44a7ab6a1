"""The lists of names, defaults and ranges that rules go by, held against the clients themselves."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from holdfast.plugin.librdkafka import _ARGUMENTS, PROPERTIES
from holdfast.tools.advice.doctor import Severity, examine
from holdfast.tools.advice.rules import names, rocketmq
from holdfast.tools.advice.rules.conf import DEFAULTS, Client
from tests.unit.test_doctor_conf import CASES, JAVA

if TYPE_CHECKING:
    from tests.golden.java_group import JavaGroup

_SERVERS = Path(__file__).parents[2] / ".servers"
_KAFKA = Path(os.environ.get("HOLDFAST_KAFKA_LIB", _SERVERS / "kafka" / "lib"))
_ROCKETMQ = Path(os.environ.get("HOLDFAST_ROCKETMQ_LIB", _SERVERS / "rocketmq" / "lib"))
_CLIENT = "org.apache.rocketmq.client"


@pytest.fixture(scope="module")
def librdkafka() -> list[list[str]]:
    """Its own table of properties: name, who knows it, range, default, importance, description."""
    [found] = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka*")
    library, libc = ctypes.CDLL(str(found)), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    with tempfile.NamedTemporaryFile() as file:
        stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
        library.rd_kafka_conf_properties_show(stream)
        libc.fclose(stream)
        text = Path(file.name).read_text()
    rows = [[cell.strip() for cell in line.split("|", 5)] for line in text.splitlines() if line.count("|") >= 5]
    return [row for row in rows if row[0] != "Property" and not row[0].startswith("-")]


def test_librdkafka_knows_these_names(librdkafka: list[list[str]]) -> None:
    known = {row[0] for row in librdkafka}
    assert known <= PROPERTIES
    assert PROPERTIES - known == set(_ARGUMENTS.split())


def test_librdkafka_s_defaults_are_these(librdkafka: list[list[str]]) -> None:
    # A name of the older kind of consumer, or of a topic, may come twice: the first is the one that counts.
    said: dict[str, str] = {}
    for name, _, _, default, *_ in librdkafka:
        said.setdefault(name, default)
    assert {name: said[name] for name in DEFAULTS[Client.LIBRDKAFKA]} == DEFAULTS[Client.LIBRDKAFKA]


def test_librdkafka_s_aliases_are_these(librdkafka: list[list[str]]) -> None:
    consumer = {row[0] for row in librdkafka if row[1] in ("*", "C")}
    found = {
        frozenset({row[0], target[1]})
        for row in librdkafka
        if row[0] in consumer and (target := re.search(r"Alias for `([^`]+)`", row[5]))
    }
    assert {frozenset(each) for each in names.ALIASES.items()} == found


@pytest.fixture(scope="module")
def java() -> dict[str, str]:
    """ConsumerConfig's own documentation: name -> default."""
    command = ["java", "-cp", f"{_KAFKA}/*", "org.apache.kafka.clients.consumer.ConsumerConfig"]
    html = subprocess.run(command, capture_output=True, check=True, text=True, timeout=120).stdout
    found = re.findall(r'<h4><a id="([^"]+)">.*?<th>Default:</th><td>(.*?)</td>', html, re.DOTALL)
    return {name: default.partition(" (")[0].replace("class ", "") for name, default in found}


def test_java_s_client_knows_these_names(java: dict[str, str]) -> None:
    assert java.keys() == names.JAVA


def test_java_s_defaults_are_these(java: dict[str, str]) -> None:
    assert {name: java[name] for name in DEFAULTS[Client.JAVA]} == DEFAULTS[Client.JAVA]


def test_no_start_is_said_where_java_s_client_refuses(java_group: JavaGroup) -> None:
    """Of each case of Java's in test_doctor_conf."""
    asked = 0
    for rule, case in CASES:
        if case.healthy != "java":
            continue
        for change in (case.found, *case.silent):
            conf = {name: _said(value) for name, value in {**JAVA, **change}.items() if value is not None}
            del conf["key.deserializer"], conf["value.deserializer"]  # the oracle brings its own
            conf["bootstrap.servers"] = "127.0.0.1:1"
            if "com.shop" in str(conf):  # a class that is not on the oracle's path
                continue
            found = examine(conf, client=Client.JAVA)
            unknown = any(each.rule == "unknown-key" for each in found)
            error = any(each.severity is Severity.ERROR for each in found)
            answer = java_group.check(conf)
            assert (unknown, error or unknown) == (answer.startswith("unknown"), answer != "ok"), (rule, change, found)
            asked += 1
    assert asked > 10


def _said(value: object) -> object:
    return ",".join(value) if isinstance(value, list) else value


def test_rocketmq_s_client_knows_these_names() -> None:
    classes = [f"{_CLIENT}.{name}" for name in ("consumer.DefaultMQPushConsumer", "consumer.DefaultLitePullConsumer")]
    found = set(re.findall(r"void set([A-Z]\w*)\(", _javap(*classes, f"{_CLIENT}.ClientConfig")))
    assert {names.snake(each) for each in found} == set(names._ROCKETMQ.split())


def test_rocketmq_s_ranges_are_these() -> None:
    found = _javap("-c", f"{_CLIENT}.impl.consumer.DefaultMQPushConsumerImpl")
    said = re.findall(r"String (\w+) Out of range \[(\d+), (\d+)\]", found)
    assert {names.snake(name): (int(least), int(most)) for name, least, most in said} == rocketmq.RANGES


def _javap(*what: str) -> str:
    command = ["javap", "-p", "-cp", f"{next(_ROCKETMQ.glob('rocketmq-client-5*.jar'))}", *what]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=120).stdout
