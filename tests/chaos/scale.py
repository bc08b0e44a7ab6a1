"""`python -m tests.chaos.scale --partitions 200 --members 20`: many partitions, many members, one machine.

All members start at once, one joins, two leave. Told: after how long the broker has each partition at a member, evenly,
and what a record costs them in processor time. Asserted: the promises, by the ledger, and that shares differ by one at
most.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from tests.harness.group.config import KAFKA
from tests.harness.group.field import Field
from tests.harness.servers.kafka import KafkaServer
from tests.harness.servers.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.harness.group.process import Member

_WITHIN_S = 240.0


def _shares(field: Field) -> list[int]:
    """How many partitions each member of the group has, as the broker sees it."""
    try:
        found = field.kafka.admin.describe_consumer_groups([field.group])[field.group].result(30)
    except KafkaException:
        return []
    return [len(each.assignment.topic_partitions) if each.assignment else 0 for each in found.members]


def _until_even(field: Field, members: int, partitions: int) -> float:
    """Returns after how many seconds."""
    began = time.monotonic()

    def even() -> bool:
        shares = _shares(field)
        return len(shares) == members and sum(shares) == partitions and max(shares) - min(shares) <= 1

    field.until(even, f"{members} members share {partitions} partitions evenly", _WITHIN_S)
    return time.monotonic() - began


def _processor_s(members: Iterable[Member]) -> float:
    """User and system time of these processes, so far (proc(5))."""
    ticks = 0
    for each in members:
        fields = Path(f"/proc/{each.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _work(field: Field, partitions: int, records: int) -> None:
    """Send so many to all partitions in turn; returns when they are handled."""
    for number in range(records):
        field.traffic.send(field.topic, field.traffic.next(), partition=number % partitions)
    field.traffic.flush()
    field.until_caught_up(0)


def main() -> int:
    """Status 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--partitions", type=int, default=200)
    parser.add_argument("--members", type=int, default=20)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--on", default="consumer", choices=KAFKA)
    asked = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="holdfast-scale-"))
    with (
        KafkaServer() as kafka,
        RedisServer() as redis,
        Field(kafka, redis.url, home, protocol=asked.on, seed=1, work_ms=0.5, partitions=asked.partitions) as field,
    ):
        field.sampler.stop()  # it would ask for a thousand offsets ten times a second
        members = [field.start(f"m{number}") for number in range(asked.members)]
        print(
            f"{asked.members} join: even after {_until_even(field, asked.members, asked.partitions):.1f} s", flush=True
        )
        _work(field, asked.partitions, asked.partitions)
        before = _processor_s(members)
        _work(field, asked.partitions, asked.records)
        used = _processor_s(members) - before
        print(f"{asked.records} records: {used / asked.records * 1e6:.0f} us of processor each", flush=True)
        field.start("one more")
        print(f"one joins: even after {_until_even(field, asked.members + 1, asked.partitions):.1f} s", flush=True)
        _work(field, asked.partitions, asked.partitions)
        field.stop(*members[:2])
        print(f"two leave: even after {_until_even(field, asked.members - 1, asked.partitions):.1f} s", flush=True)
        _work(field, asked.partitions, asked.partitions)
        faults = field.finish().faults()
    print("\n".join(faults) or "the promises held")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
