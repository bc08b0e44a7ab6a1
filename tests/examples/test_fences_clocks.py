"""Nothing of the protocol goes by the time of day: members whose clocks are hours apart, and step back and forth."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from tests.examples.fence_bench import Member
from tests.harness.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.servers.kafka import KafkaServer
    from tests.harness.servers.redis import RedisServer

HOUR_S = 3600


class Flow:
    """Orders, as long as the test wants some."""

    def __init__(self, kafka: KafkaServer, topic: str) -> None:
        self._topic, self._producer = topic, Producer({"bootstrap.servers": kafka.bootstrap})
        self.sent = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            value = json.dumps({"order_id": f"order-{self.sent}", "customer": "c", "cents": 1})
            self._producer.produce(self._topic, value, partition=self.sent % 4)
            self.sent += 1
        assert self._producer.flush(30) == 0


@pytest.mark.full
def test_clocks_that_differ_by_hours_and_step_repeat_nothing_and_cost_no_session(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    topic = f"clocks-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 4)
    given: dict[str, Any] = {
        "bootstrap": kafka.bootstrap,
        "redis": redis_server.url,
        "topic": topic,
        "strategy": "cooperative-sticky",
        "kind": "redis",
        "sink": redis_server.url,
        "fenced": True,
    }

    def set_clock(name: str, off_s: float) -> str:
        file = tmp_path / f"{name}.clock"
        new = file.with_suffix(".new")
        new.write_text(str(off_s))
        new.replace(file)
        return str(file)

    flow, steps = Flow(kafka, topic), cycle([HOUR_S, -2 * HOUR_S, 0, 24 * HOUR_S])
    members: list[Member] = []

    def wrote() -> Counter[str]:
        return Counter(line["wrote"] for each in members for line in each.told("wrote"))

    def all_written() -> bool:
        set_clock("a", next(steps))
        return len(wrote()) == flow.sent

    def both_write() -> bool:
        flow.send(4)
        return all(each.told("wrote") for each in members) and all_written()

    with (
        Member(tmp_path, "a", **given, clock=set_clock("a", HOUR_S)) as a,
        Member(tmp_path, "b", **given, clock=set_clock("b", -HOUR_S)) as b,
    ):
        members += [a, b]
        until(both_write, "both have partitions")
        b.stop()
        flow.send(100)
        until(all_written, lambda: f"{len(wrote())} of {flow.sent}")
        with Member(tmp_path, "c", **given, clock=set_clock("c", 30 * 24 * HOUR_S)) as c:
            members.append(c)
            until(both_write, "the third has some")
            c.stop()
        a.stop()
        assert set(wrote().values()) == {1}
        for each in members:
            assert "session lost" not in each.log.read_text()
            assert each.told("refused") == []
