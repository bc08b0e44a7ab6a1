"""An example for RocketMQ in a test's hands: a process with the tests' servers, a topic and a group of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from examples.rocketmq.shop import make_topic, send
from tests.examples.bench import ROOT, _begin
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.harness.servers.rocketmq import RocketMQServer


class Running:
    """A process; its lines are read as they come."""

    def __init__(self, command: list[str], env: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_begin,
        )
        self._changed = threading.Condition()
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((self._process.stdout, self.lines), (self._process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Iterator[str], lines: list[str]) -> None:
        for line in stream:
            with self._changed:
                lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    @property
    def billed(self) -> list[str]:
        """The ids of orders."""
        return [line.split()[1] for line in list(self.lines) if line.startswith("billed ")]

    def until(self, condition: Callable[[], bool]) -> None:
        """Look again with each line."""
        until(condition, lambda: (self.lines[-5:], self.errors[-5:]), changed=self._changed)

    def end(self, number: int = signal.SIGTERM) -> int:
        """A signal; returns the exit status when all its lines are read."""
        self._process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """The exit status, when it has ended by itself."""
        status = self._process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        return status

    def close(self) -> None:
        self._process.kill()
        self.ended()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


class RocketMQShop:
    """A topic, its orders, and the examples that read it."""

    def __init__(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        name = uuid.uuid4().hex[:8]
        self.rocketmq, self.redis_url = rocketmq, redis_url
        self.topic, self.group = f"shop-{name}", f"billing-{name}"
        make_topic(rocketmq.namesrv, self.topic)

    def send(self, *ids: str) -> None:
        send(self.rocketmq.namesrv, self.topic, list(ids))

    def run(self, module: str, *arguments: object) -> list[str]:
        """Run an example to its end, which has to be a good one; returns the lines of its standard output."""
        with self.running(module, *arguments) as process:
            assert process.ended() == 0, process.errors
        return process.lines

    @contextmanager
    def running(self, module: str, *arguments: object) -> Iterator[Running]:
        """An example that goes on; killed at the end of the block, if it has not ended."""
        where = ["--namesrv", self.rocketmq.namesrv, "--redis", self.redis_url, "--topic", self.topic]
        command = [sys.executable, "-W", "error", "-m", module, *where, "--group", self.group, *map(str, arguments)]
        process = Running(command)
        try:
            yield process
        finally:
            process.close()
