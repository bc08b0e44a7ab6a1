"""`holdfast run --processes` on a real Kafka: one is killed, all are stopped and started, each order is billed."""

from __future__ import annotations

import os
import signal
import uuid
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.cli.bench import holdfast
from tests.cli.running import Run
from tests.harness.kafka_shop import BOOTSTRAP, NAME, REDIS
from tests.harness.memory_shop import ledger
from tests.harness.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.servers.kafka import KafkaServer

ORDERS = 300
PARTITIONS = 4


class Shop:
    """A group with a topic of its own, and what its processes have noted."""

    def __init__(self, kafka: KafkaServer, redis_url: str, folder: Path) -> None:
        self.kafka, self.name, self.folder = kafka, f"shop-{uuid.uuid4().hex[:8]}", folder
        self.environment = {NAME: self.name, BOOTSTRAP: kafka.bootstrap, REDIS: redis_url}
        kafka.create_topic(self.name, PARTITIONS)

    def run(self) -> Run:
        arguments = ("tests.harness.kafka_shop:make_app", "--factory", "--processes", 2, "--static", "till")
        return Run(self.folder, *arguments, environment=self.environment)

    def send(self) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
        for number in range(ORDERS):
            producer.produce(self.name, value=b"order", partition=number % PARTITIONS)
        assert producer.flush(30) == 0

    def noted(self, what: str, *, pid: int | None = None) -> Counter[str]:
        """How often each order was."""
        lines = [each for each in ledger(self.folder / "ledger") if pid is None or each["pid"] == pid]
        return Counter(str(each["what"]).split()[1] for each in lines if str(each["what"]).startswith(what))

    def of_process(self, ordinal: str) -> int | None:
        """The first process id of that ordinal; None = it has noted nothing."""
        lines = ledger(self.folder / "ledger")
        return next((int(each["pid"]) for each in lines if each["process"] == ordinal), None)

    def until_billed(self, orders: int) -> None:
        until(lambda: len(self.noted("billed")) >= orders, lambda: len(self.noted("billed")))


@pytest.mark.full
def test_nothing_is_lost_and_a_kill_alone_repeats(kafka: KafkaServer, redis_url: str, tmp_path: Path) -> None:
    shop = Shop(kafka, redis_url, tmp_path)
    shop.send()
    with shop.run() as run:
        until(lambda: all(f"[{each}] holdfast: assigned" in run.log for each in (0, 1)), lambda: run.log)
        shop.until_billed(ORDERS)
        told = holdfast("lag", "--group", shop.name, "--bootstrap", kafka.bootstrap).stdout
        assert {"till-0", "till-1"} <= set(told.split())

        shop.send()
        killed = until(lambda: shop.of_process("1"))
        os.kill(killed, signal.SIGKILL)
        shop.until_billed(2 * ORDERS)
        until(lambda: run.log.count("process 1 has begun") == 2, lambda: run.log)
        repeated_by_the_kill = {each for each, times in shop.noted("billed").items() if times > 1}
        assert repeated_by_the_kill <= shop.noted("begins", pid=killed).keys()

        shop.send()
        run.signal(signal.SIGTERM)
        run.ends(0)
    for pid in {int(each["pid"]) for each in ledger(run.ledger_path)} - {killed}:
        assert shop.noted("begins", pid=pid) == shop.noted("billed", pid=pid)  # what had begun was drained
    with shop.run() as run:
        shop.until_billed(3 * ORDERS)
        run.signal(signal.SIGTERM)
        run.ends(0)
    billed = shop.noted("billed")
    assert len(billed) == 3 * ORDERS
    assert {each for each, times in billed.items() if times > 1} == repeated_by_the_kill
    assert kafka.committed(shop.name, shop.name) == kafka.end_offsets(shop.name)
