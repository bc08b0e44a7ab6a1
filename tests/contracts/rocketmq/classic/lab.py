"""What these tests share: messages on the real broker, apps on them in threads, members as processes."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from holdfast.adapters.rocketmq import PushSource
from holdfast.adapters.rocketmq.remoting import Admin, Message, PullRequest, RemotingClient, Sender, Subscription
from holdfast.timing import Deadline
from tests.contracts.rocketmq.grpc.lab import PATIENCE_S, create_topic, new_name
from tests.harness.processes import end, spawn
from tests.harness.waiting import until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Iterator

    from tests.harness.servers.rocketmq import RocketMQServer

_MEMBER = Path(__file__).with_name("member.py")


class Topic:
    """A topic of its own on the broker, and a group that reads it."""

    def __init__(self, server: RocketMQServer, *, queues: int = 4) -> None:
        self.server = server
        self.name = create_topic(server, new_name(), queues=queues)
        self.group = new_name("billing")

    def send(self, values: Iterable[bytes | str], *, tag: str = "", **properties: str) -> None:
        """One after the other, over all queues in turn. Not by the client's own producer: a try of its own that it
        repeats has another UNIQ_KEY, and is another message."""
        with RemotingClient(self.server.namesrv) as client:
            sender, deadline = Sender(client), Deadline(4 * PATIENCE_S)
            queues = itertools.cycle(client.route(self.name, deadline).queues())
            for value in values:
                body = value if isinstance(value, bytes) else value.encode()
                keys = f"key-{body.decode(errors='replace')}"
                message = Message(self.name, body, tags=tag or None, keys=[keys], properties=properties)
                sender.send(next(queues), message, deadline)

    def make_again(self) -> None:
        """Deleted and created: another log, and no offset of the group."""
        with RemotingClient(self.server.namesrv) as client:
            Admin(client).delete_topic(self.name, Deadline(PATIENCE_S))
        create_topic(self.server, self.name, queues=4)

    def source(self, **options: Any) -> PushSource:
        return PushSource(**{"namesrv": self.server.namesrv, "group": self.group} | options)

    def wait(self, over: Callable[[], object]) -> None:
        until(over, patience_s=PATIENCE_S)

    def members(self) -> list[str]:
        """Client ids, as the broker knows them."""
        deadline = Deadline(PATIENCE_S)
        with RemotingClient(self.server.namesrv) as client:
            (broker,) = client.route(self.name, deadline).brokers
            return client.consumer_ids(broker, self.group, deadline)

    def letters(self) -> list[bytes]:
        """What lies in the group's own topic of dead letters."""
        deadline, name = Deadline(PATIENCE_S), f"%DLQ%{self.group}"
        with RemotingClient(self.server.namesrv) as client:
            asked = [
                PullRequest(queue=queue, group="looks", offset=0, subscription=Subscription(topic=name), suspend_s=0)
                for queue in client.route(name, deadline).queues()
            ]
            return [message.body for each in asked for message in client.pull(each, deadline).messages()]

    def lag(self) -> int:
        """What the group has not committed, as the broker sees it; a queue without an offset counts as a whole."""
        deadline = Deadline(PATIENCE_S)
        with RemotingClient(self.server.namesrv) as client:
            queues = client.route(self.name, deadline).queues()
            return sum(
                client.max_offset(queue, deadline) - (client.query_offset(queue, self.group, deadline) or 0)
                for queue in queues
            )


class Traffic:
    """Values m0, m1, ... to a topic: some at once, then one after the other until the end of the block."""

    def __init__(self, topic: Topic, *, backlog: int, wait_s: float) -> None:
        self._topic, self._backlog, self._wait_s = topic, backlog, wait_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0

    def _run(self) -> None:
        self._topic.send(self._values())

    def _values(self) -> Iterator[str]:
        while not self._over.is_set():
            if self.sent >= self._backlog:
                self._over.wait(self._wait_s)
            self.sent += 1
            yield f"m{self.sent - 1}"

    def stop(self) -> int:
        """Replies with how many there are."""
        self._over.set()
        self._thread.join(PATIENCE_S)
        return self.sent

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Members:
    """Processes of one group, and their ledger. The end of the block kills those that are left."""

    def __init__(self, topic: Topic, redis_url: str, home: Path, *, kind: str = "holdfast", handler_s: float) -> None:
        self._topic, self._redis_url, self._kind, self._handler_s = topic, redis_url, kind, handler_s
        self._ledger = home / f"{topic.group}.ledger"
        self._ledger.touch()
        self._log = home / f"{topic.group}.log"
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, kind: str | None = None) -> subprocess.Popen[bytes]:
        """Returns when it has handled something. `kind`: other than the rest."""
        topic = self._topic
        arguments = [
            kind or self._kind,
            topic.server.namesrv,
            topic.name,
            topic.group,
            self._redis_url,
            str(self._ledger),
        ]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[4])}
        process = spawn(
            [sys.executable, str(_MEMBER), *arguments, str(self._handler_s)], self._log, environment=environment
        )
        self._processes.append(process)
        self.wait(lambda: process.pid in self.pids())
        return process

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """SIGTERM; returns when it has ended."""
        process.terminate()
        process.wait(PATIENCE_S)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL."""
        os.kill(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)

    def _rows(self) -> list[list[str]]:
        return [line.split() for line in self._ledger.read_text().splitlines()]

    def pids(self) -> set[int]:
        return {int(row[0]) for row in self._rows()}

    def handled(self) -> Counter[str]:
        """Value -> how often."""
        return Counter(row[2] for row in self._rows())

    def repeats(self) -> int:
        handled = self.handled()
        return sum(handled.values()) - len(handled)

    def wait(self, over: Callable[[], object], patience_s: float = 2 * PATIENCE_S) -> None:
        until(over, lambda: self._log.read_text()[-2000:], patience_s=patience_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            end(process, patience_s=0.0 if self._kind == "careless" else 20.0)
