"""An example for RocketMQ in a test's hands: a process with the tests' servers, a topic and a group of its own."""

from __future__ import annotations

import sys
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from examples.rocketmq.shop import make_topic, send
from tests.examples.running import Running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.servers.rocketmq import RocketMQServer


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
