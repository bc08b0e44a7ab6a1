"""compose.yaml: what it tells the image about Kafka is what a broker starts with, and takes its health check for."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from examples.rocketmq.shop import make_topic, send
from examples.shop import make_topics
from tests.examples.bench import ROOT
from tests.harness.processes import end, free_ports, spawn, tail
from tests.harness.servers.kafka_node import jars, java_tool
from tests.harness.servers.rocketmq import RocketMQServer
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.full

_COMPOSE = (ROOT / "compose.yaml").read_text(encoding="utf-8")


def properties() -> dict[str, str]:
    """As the image makes them of its environment: KAFKA_A_B is a.b."""
    found = re.findall(r'^      (KAFKA_[A-Z_]+): "(.*)"$', _COMPOSE, re.MULTILINE)
    return {name.removeprefix("KAFKA_").replace("_", ".").lower(): value for name, value in found}


def test_a_broker_starts_with_the_settings_of_compose(tmp_path: Path) -> None:
    host, internal, controller = free_ports(3)
    local = {
        "listeners": f"HOST://127.0.0.1:{host},INTERNAL://127.0.0.1:{internal},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"HOST://127.0.0.1:{host},INTERNAL://127.0.0.1:{internal}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "log.dirs": str(tmp_path / "data"),
    }
    described = properties()
    assert local.keys() < described.keys()
    names = re.compile(r"(\w+)://")
    for name in ("listeners", "advertised.listeners"):
        assert names.findall(described[name]) == names.findall(local[name])
    settings, log = tmp_path / "server.properties", tmp_path / "log"
    settings.write_text("".join(f"{name}={value}\n" for name, value in (described | local).items()))
    how = ("format", "-t", "5L6g3nShT-eMCtK--X86sw", "-c", str(settings))
    format_it = java_tool(jars(), "kafka.tools.StorageTool", *how)
    subprocess.run(format_it, check=True, capture_output=True, timeout=PATIENCE_S)
    broker = spawn(java_tool(jars(), "kafka.Kafka", str(settings)), log)
    try:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{host}", "log_level": 0})
        until(lambda: answers(admin) or broker.poll() is not None, lambda: tail(log))
        assert broker.poll() is None, tail(log)
        for address in (host, internal):
            make_topics(f"127.0.0.1:{address}", "orders", "orders.dlq")
        assert {"orders", "orders.dlq"} <= admin.list_topics(timeout=PATIENCE_S).topics.keys()
    finally:
        end(broker, patience_s=15.0)


def answers(admin: AdminClient) -> bool:
    try:
        return bool(admin.list_topics(timeout=1.0).brokers)
    except KafkaException:
        return False


def test_redis_evicts_nothing_and_writes_what_it_has_to_disk() -> None:
    command = re.search(r'command: \["redis-server", (.*)\]', _COMPOSE)
    assert command is not None
    assert '"--appendonly", "yes"' in command[1]
    assert '"--maxmemory-policy", "noeviction"' in command[1]


def test_a_rocketmq_broker_starts_with_the_settings_of_compose() -> None:
    [block] = re.findall(r"BROKER_CONF: \|\n((?: {8}\S.*\n)+)", _COMPOSE)
    settings = dict(line.strip().split("=", 1) for line in block.splitlines())
    assert f'"127.0.0.1:{settings["listenPort"]}:{settings["listenPort"]}"' in _COMPOSE
    with RocketMQServer(settings={name: value for name, value in settings.items() if name != "listenPort"}) as server:
        make_topic(server.namesrv, "orders")
        send(server.namesrv, "orders", ["a"])
