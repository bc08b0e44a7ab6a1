"""An example in a test's hands: a process with the tests' servers and a topic of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from examples.shop import make_topics, send
from tests.harness.processes import die_with_parent
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.servers.kafka import KafkaServer

ROOT = Path(__file__).parents[2]


class Shop:
    """A topic, its orders, and the examples that read it."""

    def __init__(self, kafka: KafkaServer, redis_url: str) -> None:
        self.kafka, self.redis_url = kafka, redis_url
        self.topic = f"shop-{uuid.uuid4().hex[:8]}"
        make_topics(kafka.bootstrap, self.topic, f"{self.topic}.dlq")

    def send(self, *ids: str) -> None:
        send(self.kafka.bootstrap, self.topic, list(ids))

    def run(self, module: str, *arguments: object, handler_fails: bool = False) -> list[str]:
        """Run an example to its end, which has to be a good one; returns the lines of its standard output. A traceback
        is in its log where its handler fails on purpose, and only there."""
        ran = subprocess.run(
            self._command(module, *arguments),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            stdin=subprocess.DEVNULL,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert ("Traceback" in ran.stderr) is handler_fails, ran.stderr
        return ran.stdout.splitlines()

    @contextmanager
    def running(self, module: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
        """An example that goes on; killed at the end of the block, if it has not ended."""
        process = subprocess.Popen(
            self._command(module, *arguments),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=begin,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def _command(self, module: str, *arguments: object) -> list[str]:
        where = ["--bootstrap", self.kafka.bootstrap, "--redis", self.redis_url, "--topic", self.topic]
        return [sys.executable, "-W", "error", "-m", module, *where, *map(str, arguments)]


def begin() -> None:
    """In the child: whatever started the tests may ignore Ctrl-C (a shell does so in the background)."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    """The next lines of its output."""
    assert process.stdout is not None
    said = [process.stdout.readline().rstrip("\n") for _ in range(count)]
    assert all(said), f"it ended with status {process.wait(PATIENCE_S)} after {said}"
    return said


def stop(process: subprocess.Popen[str]) -> str:
    """Ctrl-C; returns what it said after that."""
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    return said
