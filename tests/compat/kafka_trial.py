"""The trial of one confluent-kafka: members come and go, records come one by one, and each is to be handled once.

A process of its own, started by `kafka_clients.py` with that version first on its path. Its last line is what it found.

The faults that are looked for are at the ends of partitions: so there is no more to read than one record at a time.
"""

from __future__ import annotations

import argparse
import json
import random
import threading
import time
import uuid
from collections import Counter
from typing import TYPE_CHECKING

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast import Holdfast, MemoryClaims, Settings
from holdfast.plugin.engine.partition.holes import Holes
from holdfast.plugin.events import ClientSkipped, RebalanceReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Producer

    from holdfast.plugin.events import Event
    from holdfast.records import Record

_PARTITIONS, _MEMBERS = 4, 2
#: How long after the last record everything has to be handled.
_REST_S = 30.0
_PROTOCOLS: Sequence[dict[str, object]] = (
    {"partition.assignment.strategy": "cooperative-sticky"},
    {"partition.assignment.strategy": "cooperative-sticky"},
    {"partition.assignment.strategy": "range"},
    {"group.protocol": "consumer"},
)


class _Group:
    """Members in threads, under one protocol, on a topic of their own."""

    def __init__(self, bootstrap: str, protocol: dict[str, object], claims: MemoryClaims) -> None:
        self.topic, self._bootstrap, self._protocol, self._claims = (
            f"t{uuid.uuid4().hex[:8]}",
            bootstrap,
            protocol,
            claims,
        )
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(self.topic, _PARTITIONS, 1)])[self.topic].result(30)
        self.handled: Counter[tuple[int, int]] = Counter()
        self.skipped = self.rebalances = 0
        self.members: list[tuple[Holdfast, threading.Thread]] = []

    def on_event(self, event: Event) -> None:
        if isinstance(event, ClientSkipped):
            self.skipped += event.records
        self.rebalances += isinstance(event, RebalanceReport)

    def join(self) -> None:
        from holdfast.adapters.kafka import KafkaSource  # noqa: PLC0415 - after `--refused`

        conf = {"bootstrap.servers": self._bootstrap, "group.id": self.topic, "auto.offset.reset": "earliest"}
        app = Holdfast(
            KafkaSource(conf | self._protocol, assignment="keep"),
            claims=self._claims,
            settings=Settings(workers=2, ramp=None, commit_interval_s=0.2),
            observers=[self],
        )

        @app.handler(self.topic)
        def handle(record: Record) -> None:
            self.handled[record.partition.number, record.offset] += 1

        thread = threading.Thread(target=app.run)
        thread.start()
        self.members.append((app, thread))

    def part(self, chance: random.Random) -> None:
        app, thread = self.members.pop(chance.randrange(len(self.members)))
        app.stop()
        thread.join()


def _played(group: _Group, producer: Producer, chance: random.Random, seconds: float) -> set[tuple[int, int]]:
    """Returns: what was sent."""
    sent: set[tuple[int, int]] = set()

    def send() -> None:
        def stored(error: object, message: object) -> None:
            assert error is None, error
            sent.add((message.partition(), message.offset()))  # type: ignore[attr-defined]

        while not over.wait(chance.choice([0.001, 0.01, 0.05])):
            producer.produce(group.topic, b"", partition=chance.randrange(_PARTITIONS), on_delivery=stored)
            producer.flush(30)

    over = threading.Event()
    sender = threading.Thread(target=send)
    sender.start()
    ends = time.monotonic() + seconds
    group.join()
    while time.monotonic() < ends:
        if len(group.members) < _MEMBERS:
            group.join()
        else:
            group.part(chance)
        time.sleep(chance.choice([0.3, 1.0, 2.0]))
    over.set()
    sender.join()
    if not group.members:
        group.join()
    ends = time.monotonic() + _REST_S
    while time.monotonic() < ends and not sent <= group.handled.keys():
        time.sleep(0.05)
    while group.members:
        group.part(chance)
    return sent


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--refused", action="store_true")
    parser.add_argument("--blind", action="store_true")
    given = parser.parse_args()
    versions = {"confluent_kafka": confluent_kafka.__version__, "librdkafka": confluent_kafka.libversion()[0]}
    if given.refused:
        confluent_kafka.libversion = lambda: ("any", 1 << 32)  # which holdfast asks when it is imported
    if given.blind:
        Holes._is_the_logs = lambda *_: True  # type: ignore[method-assign]
    chance, claims = random.Random(given.seed), MemoryClaims()
    found: Counter[str] = Counter(records=0, rebalances=0, skipped=0, lost=0, twice=0)
    producer = confluent_kafka.Producer({"bootstrap.servers": given.bootstrap, "linger.ms": 0})
    for protocol in _PROTOCOLS:
        group = _Group(given.bootstrap, protocol, claims)
        sent = _played(group, producer, chance, given.seconds / len(_PROTOCOLS))
        found.update(
            records=len(sent),
            rebalances=group.rebalances,
            skipped=group.skipped,
            lost=len(sent - group.handled.keys()),
            twice=sum(times - 1 for times in group.handled.values()),
        )
    print(json.dumps(versions | found))


if __name__ == "__main__":
    main()
