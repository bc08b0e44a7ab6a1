"""Loops of one's own with KafkaConsumer on a real broker, as probes and Prometheus see them."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from holdfast.adapters.kafka import AIOKafkaConsumer
from holdfast.adapters.watching import serve, write_health
from tests.contracts.kafka.test_consumer import Loops
from tests.contracts.kafka.test_consumer_kinds import claims_of, conf_of
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast import RedisClaims
    from holdfast.adapters.kafka import KafkaConsumer
    from holdfast.adapters.watching import Endpoint
    from tests.harness.servers.kafka import KafkaServer


@pytest.fixture
def loops(kafka: KafkaServer, redis_url: str) -> Iterator[Loops]:
    made = Loops(kafka, redis_url, partitions=2)
    yield made
    made.close()


def asked(endpoint: Endpoint, path: str) -> tuple[int, str]:
    """Code and body."""
    with closing(http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=PATIENCE_S)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def ready(endpoint: Endpoint) -> tuple[int, list[str]]:
    code, body = asked(endpoint, "/ready")
    return code, json.loads(body)["reasons"]


def handled(endpoint: Endpoint) -> float:
    _, body = asked(endpoint, "/metrics")
    [total] = [
        sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
        if sample.name == "holdfast_records_handled_total"
    ]
    return total


class Loop:
    """A loop in a thread: it is with its first record until it may go on, and then waits in `poll`."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self.consumer = consumer
        self.has_first, self.goes_on, self.ends = threading.Event(), threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.ends.is_set():
            if self.consumer.poll(1.0) is not None:
                self.has_first.set()
                assert self.goes_on.wait(PATIENCE_S)
        self.consumer.close()


def test_a_loop_answers_probes_and_prometheus_while_it_handles_and_while_it_waits(loops: Loops, tmp_path: Path) -> None:
    loops.produce(["a", "b", "c"], partition=0)
    consumer = loops.consumer()
    with serve(consumer, port=0) as endpoint, write_health(tmp_path / "health", consumer, every_s=0.1):
        assert ready(endpoint) == (503, ["the app has not been started"])
        consumer.subscribe([loops.topic])
        loop = Loop(consumer)
        assert loop.has_first.wait(PATIENCE_S)
        assert ready(endpoint) == (200, [])  # the loop is with its record
        assert json.loads(asked(endpoint, "/status")[1])["apps"][0]["state"] == "running"
        assert handled(endpoint) == 0
        loop.goes_on.set()
        until(lambda: handled(endpoint) == 3, lambda: f"{handled(endpoint)} handled")  # it is inside of poll
        assert ready(endpoint) == (200, [])
        until(lambda: json.loads((tmp_path / "health").read_text())["ready"])
        loop.ends.set()
        loop.thread.join(PATIENCE_S)
        assert ready(endpoint) == (503, ["the app has stopped"])
        assert handled(endpoint) == 3


@pytest.mark.parametrize("run_in_loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_so_does_one_in_an_event_loop(loops: Loops, run_in_loop: Any) -> None:
    loops.produce(["a", "b", "c"], partition=0)

    async def run() -> None:
        with closing(claims_of(loops)) as claims:
            await watched(claims)

    async def watched(claims: RedisClaims) -> None:
        async with AIOKafkaConsumer(conf_of(loops), claims=claims) as consumer:
            with serve(consumer, port=0) as endpoint:
                await consumer.subscribe([loops.topic])
                got = 0
                while got < 3:
                    got += await consumer.poll(0.1) is not None
                waits = asyncio.create_task(consumer.poll(PATIENCE_S))
                await asyncio.to_thread(until, lambda: handled(endpoint) == 3)
                assert await asyncio.to_thread(ready, endpoint) == (200, [])
                waits.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waits

    run_in_loop(asyncio.wait_for(run(), PATIENCE_S))
