"""`make servers`: the quick start without Docker."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import redis
import yaml
from confluent_kafka.admin import AdminClient

from tests.harness.processes import free_ports
from tests.harness.servers.run import TOPICS

ROOT = Path(__file__).parents[2]
_RUN = (sys.executable, "-m", "tests.harness.servers.run")


def _started() -> tuple[subprocess.Popen[str], str, int, int]:
    """The servers' process, what it has said, and their ports. One that was free may be another test's by the time that
    a server would listen at it."""
    while True:
        kafka_port, redis_port = free_ports(2)
        command = (*_RUN, "--kafka-port", str(kafka_port), "--redis-port", str(redis_port))
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stderr is not None
        if said := "".join(process.stdout.readline() for _ in range(3)):
            return process, said, kafka_port, redis_port
        assert "is taken" in process.stderr.read()
        process.wait(60)


@pytest.mark.full
def test_both_are_where_the_quick_start_looks_with_its_topics_until_ctrl_c() -> None:
    process, said, kafka_port, redis_port = _started()
    with process:
        try:
            assert f"localhost:{kafka_port}" in said
            assert f"redis://localhost:{redis_port}/0" in said
            topics = AdminClient({"bootstrap.servers": f"localhost:{kafka_port}"}).list_topics(timeout=30).topics
            assert {name: len(topics[name].partitions) for name in TOPICS} == dict.fromkeys(TOPICS, 4)
            with redis.Redis(port=redis_port) as client:
                assert client.ping()
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_a_port_that_is_taken_is_named_with_the_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            (*_RUN, "--redis-port", str(port), "--kafka-port", str(free_ports(1)[0])),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == f"port {port} is taken: stop what runs there, or choose another by --redis-port\n"


def test_the_topics_are_those_of_the_compose_file() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    assert f"for topic in {' '.join(TOPICS)};" in "".join(compose["services"]["topics"]["command"])
