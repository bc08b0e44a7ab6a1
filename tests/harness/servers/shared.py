"""One set of servers a run: pytest-xdist's test processes ask its controller for them; without it each is their own."""

from __future__ import annotations

import shutil
import tempfile
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.harness.processes import ServerFailed
from tests.harness.servers.kafka import KafkaServer, SharedKafka
from tests.harness.servers.rocketmq import RocketMQServer, SharedRocketMQ

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

_Told = dict[str, Any]


def _kafka(stack: ExitStack) -> _Told:
    return stack.enter_context(KafkaServer()).told()


def _rocketmq(stack: ExitStack) -> _Told:
    return stack.enter_context(RocketMQServer()).told()


_STARTS: dict[str, Callable[[ExitStack], _Told]] = {"kafka": _kafka, "rocketmq": _rocketmq}


class Landlord:
    """Lives in the process that started the run: it starts a server when the first test process asks for it, and ends
    them all with the run. A server that cannot start fails everything that asks for it."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="holdfast-servers-"))
        self.address = str(self._home / "socket")
        self._listener = Listener(self.address, "AF_UNIX")
        # A server dies with the thread that started it, so these threads last as long as the run.
        self._starters = ThreadPoolExecutor(len(_STARTS), "servers")
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._asked: dict[str, Future[_Told]] = {}
        threading.Thread(target=self._accept, name="landlord", daemon=True).start()

    def close(self) -> None:
        """End all servers. Idempotent."""
        self._listener.close()
        self._starters.shutdown()
        self._stack.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        with connection:
            name = connection.recv()
            with self._lock:
                if name not in self._asked:
                    self._asked[name] = self._starters.submit(_STARTS[name], self._stack)
            try:
                connection.send(self._asked[name].result())
            except ServerFailed as failed:
                connection.send(failed)


def _ask(landlord: str, name: str) -> _Told:
    with Client(landlord, "AF_UNIX") as connection:
        connection.send(name)
        answer = connection.recv()
    if isinstance(answer, ServerFailed):
        raise answer
    told: _Told = answer
    return told


@contextmanager
def kafka_of(landlord: str | None) -> Iterator[KafkaServer]:
    """The run's broker: the landlord's, or (None) one of this process."""
    with KafkaServer() if landlord is None else SharedKafka(**_ask(landlord, "kafka")) as server:
        yield server


@contextmanager
def rocketmq_of(landlord: str | None) -> Iterator[RocketMQServer]:
    """The run's RocketMQ, likewise. Who stops one of its servers takes one of its own."""
    with RocketMQServer() if landlord is None else SharedRocketMQ(**_ask(landlord, "rocketmq")) as server:
        yield server
