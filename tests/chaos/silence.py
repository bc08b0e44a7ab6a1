"""`python -m tests.chaos.silence`: bare clients, without holdfast, whose only broker is silent longer than the session.

What is looked for: a member whose client never reaches its coordinator again, gives nothing up and fetches nothing,
while the group has put it out. Told by librdkafka's own statistics, after each silence. Ends at the first one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer

from tests.harness.servers.kafka import KafkaServer

_SILENCES_S = (10, 14, 11, 16, 12)
_PARTITIONS = 10
#: After a silence: who is not back by then does not come back.
_RECOVERED_S = 15.0
#: How long a client may take to close.
_CLOSED_S = 30.0


class BareMember:
    """A consumer in a thread, and what its client says of itself."""

    def __init__(self, server: KafkaServer, protocol: str) -> None:
        self.told: dict[str, Any] = {}
        self.records = 0
        own = {"group.protocol": "consumer"} if protocol == "consumer" else {
            "partition.assignment.strategy": "cooperative-sticky", "session.timeout.ms": 6_000,
        }  # fmt: skip
        self._consumer = Consumer(
            {
                "bootstrap.servers": server.bootstrap,
                "group.id": "g",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "statistics.interval.ms": 1_000,
                "stats_cb": self._stats,
                "log_level": 0,
                **own,
            }
        )
        self._consumer.subscribe(["t"])
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_lost(self) -> bool:
        """Whether its client has looked for the coordinator for long, though the broker answers others."""
        group = self.told.get("cgrp", {})
        return group.get("state") not in (None, "up") and group.get("stateage", 0) > (_RECOVERED_S - 5) * 1_000

    def says(self) -> str:
        """In a line."""
        brokers = {name: each["state"] for name, each in self.told.get("brokers", {}).items()}
        group = self.told.get("cgrp", {})
        return f"{group.get('state')} for {group.get('stateage', 0) // 1_000} s, {brokers}, {self.records} records"

    def close(self) -> bool:
        """Whether its client could be closed."""
        self._over.set()
        self._thread.join(_CLOSED_S)
        return not self._thread.is_alive()

    def _stats(self, text: str) -> None:
        self.told = json.loads(text)

    def _run(self) -> None:
        while not self._over.is_set():
            self.records += len(self._consumer.consume(100, 0.1))
        self._consumer.close()


def main() -> None:
    """Silences, until a member is lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", choices=["consumer", "cooperative"], default="consumer")
    parser.add_argument("--times", type=int, default=20)
    args = parser.parse_args()
    session = {"group.consumer.session.timeout.ms": "6000", "group.consumer.min.session.timeout.ms": "1000"}
    beat = {"group.consumer.heartbeat.interval.ms": "1000", "group.consumer.min.heartbeat.interval.ms": "500"}
    with KafkaServer(properties={**session, **beat}) as server:
        server.create_topic("t", _PARTITIONS)
        producer = Producer({"bootstrap.servers": server.bootstrap, "log_level": 0})
        members = [BareMember(server, args.protocol) for _ in range(3)]
        time.sleep(_RECOVERED_S)
        for number, silence_s in enumerate(itertools.islice(itertools.cycle(_SILENCES_S), args.times), 1):
            server.pause_broker()
            time.sleep(silence_s)
            server.resume_broker()
            for _ in range(100):
                producer.produce("t", b"x")
            producer.flush(10)
            time.sleep(_RECOVERED_S)
            for name, each in enumerate(members):
                print(f"silence {number} of {silence_s} s, member {name}: {each.says()}", flush=True)
            if any(each.is_lost for each in members):
                break
        for name, each in enumerate(members):
            print(f"member {name}: lost={each.is_lost}, its client can be closed: {each.close()}", flush=True)


if __name__ == "__main__":
    main()
