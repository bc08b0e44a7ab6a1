"""A group of several processes under `holdfast run`, from the first record that one of them has to the last."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from tests.benchmarks.lab import PARTITIONS, Speed, fill
from tests.harness.processes import kill_session, spawn, tail
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.benchmarks.lab import Lab

_ROOT = Path(__file__).parents[3]
_APP = "tests.benchmarks.scale.member:make_app"
_PATIENCE_S = 300.0


def as_one(lines: Iterable[str]) -> Speed:
    """A group's members as one, each by its line: records, when it had the first and the last by a clock that all
    share, and seconds of its processor in between.

    Raises:
        ValueError: there is no line.
    """
    members = [
        (int(count), float(began), float(ended), float(cpu)) for count, began, ended, cpu in map(str.split, lines)
    ]
    records, began, ended, cpu = zip(*members, strict=True)
    return Speed(sum(records), max(ended) - min(began), sum(cpu))


def run(lab: Lab, processes: int, records: int, redis_url: str) -> Speed:
    """So many members take their parts of the topic; only then there are records, all of them at once: they were sent
    in a transaction, and nobody sees them before its end."""
    group = f"bench-{uuid4().hex[:8]}"
    lab.kafka.create_topic(group, PARTITIONS)
    producer = lab.producer(records, {"transactional.id": group, "transaction.timeout.ms": 600_000})
    producer.init_transactions(_PATIENCE_S)
    producer.begin_transaction()
    fill(producer, group, records)
    producer.flush(_PATIENCE_S)
    with tempfile.TemporaryDirectory() as home:
        out, log = Path(home) / "out", Path(home) / "log"
        out.mkdir()
        own = {
            "BENCH_BOOTSTRAP": lab.kafka.bootstrap,
            "BENCH_GROUP": group,
            "BENCH_OUT": str(out),
            "BENCH_REDIS": redis_url,
            "BENCH_TOPIC": group,
            "PYTHONPATH": str(_ROOT),
        }
        command = [sys.executable, "-m", "holdfast", "run", _APP, "--factory", "--processes", str(processes)]
        leader = spawn(command, log, cwd=Path(home), environment=os.environ | own)
        try:
            until(lambda: _owners(lab, group) == processes, lambda: f"members: {tail(log)}", patience_s=_PATIENCE_S)
            producer.commit_transaction(_PATIENCE_S)
            until(lambda: _committed(lab, group) >= records, lambda: f"records: {tail(log)}", patience_s=_PATIENCE_S)
            leader.send_signal(signal.SIGTERM)
            leader.wait(_PATIENCE_S)
        finally:
            kill_session(leader)
        return as_one(each.read_text() for each in out.iterdir())


def _owners(lab: Lab, group: str) -> int:
    """Members that have partitions, once all partitions are somebody's."""
    found = lab.kafka.admin.describe_consumer_groups([group])[group].result(30)
    owned = [len(member.assignment.topic_partitions) for member in found.members if member.assignment]
    return sum(each > 0 for each in owned) if sum(owned) == PARTITIONS else 0


def _committed(lab: Lab, group: str) -> int:
    """The sum of the group's offsets. The mark at the end of a transaction has one too: at most as many records fewer
    as there are partitions may have been handled."""
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(group, number) for number in range(PARTITIONS)])
    [answer] = lab.kafka.admin.list_consumer_group_offsets([asked]).values()
    return sum(max(0, each.offset) for each in answer.result(30).topic_partitions)
