"""Fresh records beside a backlog: the handler of every consumer that is compared, and the producer of those records.
Nothing of ours is imported here: peers have no holdfast."""

from __future__ import annotations

import itertools
import json
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Producer

if TYPE_CHECKING:
    from collections.abc import Callable

    Send = Callable[[bytes, bytes], object]

#: The partition with the backlog, and the one that gets fresh records.
BACKLOG, FRESH = 0, 1
_KEYS = 50
#: Until a consumer has its partitions.
_START_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One measurement; its JSON goes to a peer's process."""

    bootstrap: str
    topic: str
    #: A consumer group that has begun: at the start of the backlog, and at the end of the other partition.
    group: str
    handler_s: float
    #: A fresh record is sent each `every_s`, for `seconds`.
    every_s: float
    seconds: float
    #: The longest wait of a fresh record that meets the goal.
    bound_s: float
    workers: int = 1

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Plan:
        return Plan(**json.loads(text))


class Waits(NamedTuple):
    """What was seen of the fresh records, and how much of the backlog was handled meanwhile."""

    #: Seconds from sent to the handler's start. A record whose handler has not started has waited until the end.
    seconds: list[float]
    #: Calls of poll or consume that began meanwhile, for loops that count them.
    polls: list[int]
    started: int
    backlog: int


class Fresh:
    """Handles records, and sends fresh ones from the first record of the backlog on. Any thread may call `handle`."""

    def __init__(self, plan: Plan, over: Callable[[Waits], object], send: Send | None = None) -> None:
        """Args: over: is called with what was measured; send: key and value, to the partition of fresh records."""
        self._plan, self._over = plan, over
        self._send = send or to_kafka(plan)
        self._numbers = itertools.count(1)
        self._begun = threading.Event()
        self._sent: list[tuple[float, int]] = []
        self._waits: dict[int, tuple[float, int]] = {}
        self._all_started = threading.Event()
        self._result: Waits | None = None
        #: A loop counts its calls of poll or consume here, before each.
        self.polls = 0
        self._handled = 0
        self._driver = threading.Thread(target=self._drive, daemon=True)
        self._driver.start()

    def handle(self, value: bytes | None) -> None:
        """Note the start, and take the handler's time."""
        now = time.monotonic()
        name, _, number = (value or b"").partition(b" ")
        if name == self._name:
            sent, polls = self._sent[int(number)]
            self._waits.setdefault(int(number), (now - sent, self.polls - polls))
            if len(self._waits) == len(self._sent):
                self._all_started.set()
            time.sleep(self._plan.handler_s)
        else:
            self.backlog(self._plan.handler_s)

    def backlog(self, handler_s: float) -> None:
        """Handle a record of the backlog."""
        self._handled = next(self._numbers)
        self._begun.set()
        time.sleep(handler_s)

    @property
    def finished(self) -> bool:
        """Whether all is measured."""
        return self._result is not None

    @property
    def waits(self) -> Waits:
        """What was measured. Waits for its end."""
        self._driver.join()
        assert self._result is not None
        return self._result

    @property
    def _name(self) -> bytes:
        return self._plan.group.encode()

    def _drive(self) -> None:
        plan = self._plan
        self._begun.wait(_START_S)
        began = time.monotonic()
        while (now := time.monotonic()) < began + plan.seconds:
            number = len(self._sent)
            self._all_started.clear()
            self._sent.append((now, self.polls))
            self._send(b"%d" % (number % _KEYS), b"%s %d" % (self._name, number))
            time.sleep(max(0.0, began + (number + 1) * plan.every_s - time.monotonic()))
        self._all_started.wait(plan.bound_s + 1)
        end = time.monotonic()
        so_far = [(end - sent, self.polls - polls) for sent, polls in self._sent]
        waits = [self._waits.get(number, wait) for number, wait in enumerate(so_far)]
        self._result = Waits(
            [seconds for seconds, _ in waits], [polls for _, polls in waits], len(self._waits), self._handled
        )
        self._over(self._result)


def to_kafka(plan: Plan) -> Send:
    """A producer of fresh records."""
    producer = Producer({"bootstrap.servers": plan.bootstrap, "linger.ms": 0, "log_level": 0})

    def send(key: bytes, value: bytes) -> None:
        producer.produce(plan.topic, key=key, value=value, partition=FRESH)
        producer.poll(0)

    return send


def tell(waits: Waits) -> str:
    """The last line of a peer's output."""
    return json.dumps(waits._asdict())


def told(output: str) -> Waits:
    """What a peer's process has measured.

    Raises:
        RuntimeError: its last line says something else.
    """
    lines = output.splitlines()
    try:
        fields: dict[str, Any] = json.loads(lines[-1])
        return Waits(**fields)
    except (IndexError, ValueError, TypeError):
        raise RuntimeError(f"no figures in the last line: {lines[-1:]}") from None
