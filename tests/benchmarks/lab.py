"""What benchmarks share: servers, filled topics, and child processes to measure in."""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from uuid import uuid4

from confluent_kafka import Producer

import holdfast
from tests.harness.servers.kafka import KafkaServer
from tests.harness.servers.redis import RedisServer
from tests.harness.servers.rocketmq import RocketMQServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PARTITIONS = 8
_VALUES = 20_000
_CHILD_S = 300.0


class Speed(NamedTuple):
    """What a child measured: from the first record to the last."""

    records: int
    elapsed_s: float
    #: Processor time of the whole child in the meantime, the client's threads included.
    cpu_s: float

    @property
    def per_s(self) -> float:
        return self.records / self.elapsed_s

    @property
    def cpu_us(self) -> float:
        """Processor time a record, microseconds."""
        return self.cpu_s / self.records * 1e6


class Lab:
    """Starts what is asked for; ends it all."""

    def __init__(
        self, *, quick: bool, rounds: int | None = None, other: Path | None = None, rows: Sequence[str] = ()
    ) -> None:
        """Args: rounds: instead of each benchmark's own; other: a folder with another holdfast, to compare with; rows:
        words, of which the names of rows are to have one (where a benchmark asks `wants`)."""
        self.quick, self._rounds, self._other, self._rows = quick, rounds, other, rows
        self._tree: Path | None = None
        self._asked_for_tree = False
        #: What was measured in turns with the other holdfast: here, and there.
        self.compared: dict[str, list[tuple[Speed, Speed]]] = {}
        self._stack = ExitStack()
        self._topics: dict[tuple[int, int], str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wants(self, row: str) -> bool:
        """Whether a row of that name is to be measured."""
        return not self._rows or any(words in row for words in self._rows)

    @cached_property
    def kafka(self) -> KafkaServer:
        """A broker."""
        return self._stack.enter_context(KafkaServer())

    @cached_property
    def rocketmq(self) -> RocketMQServer:
        """A name server and a broker."""
        return self._stack.enter_context(RocketMQServer())

    @cached_property
    def redis(self) -> RedisServer:
        """A Redis."""
        return self._stack.enter_context(RedisServer())

    def emptied_redis(self) -> str:
        """The URL of that Redis, with nothing in it."""
        with self.redis.client() as client:
            client.flushall()
        return self.redis.url

    def topic(self, records: int, partitions: int = PARTITIONS) -> str:
        """A topic with that many messages, spread evenly, as `fill` makes them."""
        if (records, partitions) not in self._topics:
            name = f"bench-{records}-{partitions}"
            self.kafka.create_topic(name, partitions)
            producer = self.producer(records)
            fill(producer, name, records, partitions)
            if producer.flush(120):
                raise RuntimeError("the broker did not take all messages")
            self._topics[records, partitions] = name
        return self._topics[records, partitions]

    def producer(self, records: int, more: Mapping[str, str | int] = MappingProxyType({})) -> Producer:
        """One that takes so many messages at once. Args: more: of its configuration."""
        return Producer(
            {
                "bootstrap.servers": self.kafka.bootstrap,
                "compression.type": "lz4",
                "linger.ms": 20,
                "queue.buffering.max.messages": records + 1,
                "log_level": 0,
            }
            | dict(more)
        )

    def client(self) -> dict[str, Any]:
        """A consumer's configuration, with a group of its own."""
        return {
            "bootstrap.servers": self.kafka.bootstrap,
            "group.id": f"bench-{uuid4().hex[:8]}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "group.protocol": "consumer",
            "log_level": 0,
        }

    def consume(
        self,
        measure: Callable[..., Any],
        records: int,
        partitions: int = PARTITIONS,
        *,
        store: bool = True,
        conf: Mapping[str, Any] = MappingProxyType({}),
    ) -> Any:
        """Have a child consume a topic of so many messages to its end, with a group of its own, and with an empty Redis
        where it keeps something there. Args: conf: of its client, besides."""
        url = (self.emptied_redis(),) if store else ()
        return self.in_child(measure, self.client() | dict(conf), self.topic(records, partitions), records, *url)

    def in_child(self, measure: Callable[..., Any], *args: object, patience_s: float = _CHILD_S) -> Any:
        """Call a function of a module in a fresh process, and hand back what it returns."""
        self._asked_for_tree = True
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe(duplex=False)
        child = context.Process(target=_call, args=(there, measure, args, self._tree), daemon=True)
        path = sys.path[:]
        try:
            if self._tree is not None:  # a spawned process has our path: so it finds that holdfast, and our tests
                sys.path.insert(0, str(self._tree))
            child.start()
        finally:
            sys.path[:] = path
        there.close()
        try:
            if not here.poll(patience_s):
                raise TimeoutError(f"{measure} did not end within {patience_s} s")
            ok, result = here.recv()
        except EOFError:
            raise RuntimeError(f"{measure}: its process died with {child.exitcode}") from None
        finally:
            child.kill()
            child.join()
        if not ok:
            raise RuntimeError(f"{measure}: {result}")
        return result

    def in_turns(self, rounds: int, measures: Mapping[str, Callable[[], Speed]]) -> dict[str, list[Speed]]:
        """Each once, and again: what disturbs the machine for a while disturbs all of them. With another holdfast each
        is measured with that too, by turns first and last."""
        speeds: dict[str, list[Speed]] = {name: [] for name in measures}
        for number in range(self._rounds or (1 if self.quick else rounds)):
            for name, measure in measures.items():
                self._asked_for_tree = False
                there = self._with_other(measure) if number % 2 else None
                here = measure()
                speeds[name].append(here)
                there = there or (self._with_other(measure) if self._asked_for_tree else None)
                if there is not None and self._asked_for_tree:
                    self.compared.setdefault(name, []).append((here, there))
        return speeds

    def _with_other(self, measure: Callable[[], Speed]) -> Speed | None:
        if self._other is None:
            return None
        self._tree = self._other
        try:
            return measure()
        finally:
            self._tree = None


def speed_of(output: str) -> Speed:
    """What a consumer in another environment has measured: the last line of its output is records, seconds, and seconds
    of processor time.

    Raises:
        RuntimeError: that line says something else.
    """
    lines = output.splitlines()
    try:
        records, elapsed_s, cpu_s = lines[-1].split()
        return Speed(int(records), float(elapsed_s), float(cpu_s))
    except (IndexError, ValueError):
        raise RuntimeError(f"no figures in the last line: {lines[-1:]}") from None


def typical(speeds: list[Speed]) -> Speed:
    """The one in the middle."""
    return sorted(speeds, key=lambda speed: speed.per_s)[len(speeds) // 2]


def ratio(speeds: list[Speed], to: list[Speed]) -> float:
    """The median of the rounds' ratios of rates."""
    return median(one.per_s / other.per_s for one, other in zip(speeds, to, strict=True))


def multiples(speeds: Sequence[Speed], of: Sequence[Speed]) -> list[float]:
    """Each round's processor time a record, as a multiple of another's."""
    return [one.cpu_us / other.cpu_us for one, other in zip(speeds, of, strict=True)]


def fill(producer: Producer, topic: str, records: int, partitions: int = PARTITIONS) -> None:
    """Messages of 100 bytes, each with a key of its own, evenly over the partitions. Does not wait for the broker."""
    values = [value(number) for number in range(_VALUES)]
    for number in range(records):
        producer.produce(topic, key=b"%d" % number, value=values[number % _VALUES], partition=number % partitions)


def value(seed: int) -> bytes:
    """100 bytes of JSON that compress as such things do, by about a half."""
    dice = random.Random(seed)
    order = {"order_id": f"{dice.getrandbits(128):032x}", "customer": dice.randrange(10**6), "amount": 1, "cur": "EUR"}
    return json.dumps(order).encode()[:99].ljust(100)


def _call(pipe: Any, measure: Callable[..., Any], args: tuple[object, ...], tree: Path | None) -> None:
    try:
        _is_of(tree)
        pipe.send((True, measure(*args)))
    except BaseException as error:  # noqa: BLE001 - the parent raises it
        pipe.send((False, repr(error)))


def _is_of(tree: Path | None) -> None:
    if tree is not None and not Path(holdfast.__file__).is_relative_to(tree):
        raise RuntimeError(f"holdfast is {holdfast.__file__}, and was to be that in {tree}")
