"""What all members have in common: what they are told at their start, and the work. No library is imported here: each
has an environment of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.harness.group.ledger import Ledger, Where
from tests.harness.group.orders import Order, work

if TYPE_CHECKING:
    from types import FrameType

#: The same for all. By default a session is 45 s (Kafka's protocols) and a handler may take five minutes: here an
#: outage takes seconds, so that a cell does.
SESSION_MS = 6_000
MAX_POLL_INTERVAL_MS = 6_000
#: A third of the session, as Kafka's documentation has it.
HEARTBEAT_MS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a member is told."""

    name: str
    #: Kafka's, or RocketMQ's name server.
    bootstrap: str
    topic: str
    group: str
    ledger: str
    #: URL of its store, where it has one.
    store: str = ""
    #: Where RocketMQ's proxy is.
    endpoints: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def timeouts(self) -> dict[str, Any]:
        """For clients of the classic protocol."""
        return {
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "max.poll.interval.ms": MAX_POLL_INTERVAL_MS,
        }

    @property
    def kip848(self) -> dict[str, Any]:
        """The same for the consumer protocol: session and heartbeat are the broker's to say, the lab's has these."""
        of_the_broker = ("session.timeout.ms", "heartbeat.interval.ms")
        return {
            **{name: value for name, value in self.classic.items() if name not in of_the_broker},
            "group.protocol": "consumer",
        }

    @property
    def classic(self) -> dict[str, Any]:
        """A client's configuration, and nothing that a library has an opinion on."""
        return {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "client.id": self.name,
            "auto.offset.reset": "earliest",
            **self.timeouts,
        }


class Work:
    """The handler's part. It writes to the ledger when it begins a record and when it has done it."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._ledger = Ledger(Path(told.ledger), told.name)

    def do(self, partition: int, offset: int, value: bytes, epoch: int = 0) -> None:
        """One record, as long as it takes."""
        work(self._ledger, self._told.name, Where(self._told.topic, partition, offset), value, epoch)

    async def do_async(self, partition: int, offset: int, value: bytes) -> None:
        """The same in an event loop."""
        order, where = Order.decode(value), Where(self._told.topic, partition, offset)
        self._ledger.note("start", where, order.lane, order.order_id, 0)
        await asyncio.sleep(order.work_ms / 1000)
        self._ledger.note("end", where, order.lane, order.order_id, 0)


def told() -> Told:
    """What this process was told on its command line."""
    return Told(**json.loads(sys.argv[1]))


def until_terminated() -> threading.Event:
    """An event that SIGTERM sets, for a loop to look at."""
    stopping = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    return stopping


def place(message: Any) -> tuple[int, int, bytes] | None:
    """Partition, offset and value of a message of confluent-kafka; None = it holds an error, which is printed."""
    if message.error():
        print(message.error(), file=sys.stderr)
        return None
    return message.partition(), message.offset(), message.value()


def quiet_home() -> None:
    """A folder for what a library keeps on its disk, beside the ledger: each member has its own."""
    folder = Path(told().ledger).parent / f"home-{told().name}"
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
