"""How long a partition that is taken away is kept, beyond what a synchronous commit takes."""

from __future__ import annotations

import time
from queue import SimpleQueue
from statistics import median, quantiles
from threading import Thread
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer, TopicPartition

from holdfast import Holdfast, RedisClaims, Settings
from holdfast.adapters.kafka import KafkaSource
from tests.benchmarks.lab import PARTITIONS
from tests.benchmarks.registry import Goal, Row, benchmark

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.lab import Lab

_PATIENCE_S = 30.0


@benchmark("revoke")
def revoke(lab: Lab) -> list[Row]:
    """One member gives the partitions of one topic back and gets them again, by its subscription: nobody else's
    rebalance is pending."""
    count = 20 if lab.quick else 220
    stays, goes = "revoke-stays", "revoke-goes"
    for topic in (stays, goes):
        lab.kafka.create_topic(topic, PARTITIONS)
    conf = lab.client() | {
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "heartbeat.interval.ms": 100,
    }
    bare = lab.in_child(bare_commits, conf, goes, count)
    ours = lab.in_child(app_revokes, conf | {"group.id": "revoke-app"}, stays, goes, count, lab.redis.url)
    p99, bare_p50 = quantiles(ours, n=100)[98], median(bare)
    return [
        Row(what="bare synchronous commit, p50", figure=bare_p50 * 1e3, unit=" ms", note=f"{len(bare)} commits"),
        Row(what="revoke to released, p50", figure=median(ours) * 1e3, unit=" ms", note=f"{len(ours)} revokes"),
        Row(
            what="revoke to released beyond that commit, p99",
            figure=(p99 - bare_p50) * 1e3,
            unit=" ms",
            goal=Goal(value=50, at_least=False, unit=" ms"),
            note="both end with the broker's answer to a commit of 8 partitions",
        ),
    ]


def bare_commits(conf: dict[str, Any], topic: str, count: int) -> list[float]:
    """Seconds of synchronous commits of all partitions of one topic."""
    consumer = Consumer(conf)
    consumer.subscribe([topic])
    until = time.monotonic() + _PATIENCE_S
    while len(consumer.assignment()) < PARTITIONS:
        consumer.poll(0.05)
        if time.monotonic() > until:
            raise TimeoutError("not assigned")
    took = []
    for number in range(count):
        offsets = [TopicPartition(topic, partition, number) for partition in range(PARTITIONS)]
        began = time.perf_counter()
        consumer.commit(offsets=offsets, asynchronous=False)
        took.append(time.perf_counter() - began)
    consumer.close()
    return took


class _Watched(KafkaSource):
    """Notes when a revoke begins, and when the broker has answered the commit in it: then the client lets go."""

    def __init__(self, conf: dict[str, Any]) -> None:
        super().__init__(conf, assignment="keep")
        self.took: SimpleQueue[float] = SimpleQueue()
        self._began: float | None = None
        self._watch("on_revoke", before=self._begin)
        self._watch("on_commit", after=self._end)

    def _watch(
        self, name: str, *, before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None
    ) -> None:
        callback = getattr(self._callbacks, name)

        def watched(*args: object) -> None:
            before()
            callback(*args)
            after()

        setattr(self._callbacks, name, watched)

    def _begin(self) -> None:
        self._began = time.perf_counter()

    def _end(self) -> None:
        if self._began is not None:
            began, self._began = self._began, None
            self.took.put(time.perf_counter() - began)


def app_revokes(conf: dict[str, Any], stays: str, goes: str, count: int, redis_url: str) -> list[float]:
    """Seconds from each revoke to the broker's answer to its commit."""
    source, handled = _Watched(conf), SimpleQueue[int]()
    # No commit by the clock: the one inside the revoke has something to say each time.
    app = Holdfast(source, claims=RedisClaims.from_url(redis_url), settings=Settings(commit_interval_s=3_600))
    app.handler([stays, goes], name="idle")(lambda record: handled.put(record.offset))
    took: list[float] = []

    def drive() -> None:
        producer = Producer({"bootstrap.servers": conf["bootstrap.servers"], "linger.ms": 0, "log_level": 0})
        try:
            for number in range(count):
                if number:
                    app.subscribe([stays, goes])
                for partition in range(PARTITIONS):
                    producer.produce(goes, value=b"x", partition=partition)
                producer.flush(_PATIENCE_S)
                for _ in range(PARTITIONS):
                    handled.get(timeout=_PATIENCE_S)
                app.subscribe([stays])
                took.append(source.took.get(timeout=_PATIENCE_S))
        finally:
            app.stop()

    driver = Thread(target=drive, daemon=True)
    driver.start()
    app.run()
    driver.join(_PATIENCE_S)
    if len(took) < count:
        raise TimeoutError(f"only {len(took)} revokes of {count} were seen")
    return took
