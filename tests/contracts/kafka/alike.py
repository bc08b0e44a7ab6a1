"""The same calls at confluent_kafka.Consumer and at KafkaConsumer, on topics that hold the same: what each has told.

One partition, so that there is one order; another that does not exist, for calls about what is not assigned. A record
is waited for where the script knows that there is one, so that nothing depends on how fast a fetch is.
"""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from holdfast import RedisClaims, Settings
from holdfast.adapters.kafka import KafkaConsumer
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confluent_kafka import Message

    from tests.harness.servers.kafka import KafkaServer

#: How a loop says what is done. The client's clock does not commit while a script runs.
MODES: dict[str, dict[str, Any]] = {
    "automatic": {"auto.commit.interval.ms": 3_600_000},
    "commits": {"enable.auto.commit": False},
    "stores": {"enable.auto.commit": False, "enable.auto.offset.store": False},
}
_PATIENCE_S = 20.0
_NOTHING_S = 0.3


class Side:
    """One of the two, with a topic and a group of its own."""

    def __init__(self, kafka: KafkaServer, redis_url: str, kind: str, mode: str) -> None:
        name = uuid.uuid4().hex[:8]
        self.topic, self.group, self.kind = f"alike-{name}", f"alike-{name}", kind
        self._kafka, self._redis_url, self._mode = kafka, redis_url, mode
        kafka.create_topic(self.topic, 1)
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap})
        self.consumer = self._made()
        #: The last that was returned, and where the reader stands.
        self.last: Message | None = None
        self.at = self.end = 0
        self.paused = self.sought = False

    def _made(self, **more: Any) -> Any:
        conf = {
            "bootstrap.servers": self._kafka.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "log_level": 0,
            **MODES[self._mode],
            **more,
        }
        if self.kind == "client":
            return Consumer(conf)
        claims = RedisClaims.from_url(self._redis_url, namespace=self.group)
        return KafkaConsumer(conf, claims=claims, settings=Settings(missing_key="position", commit_interval_s=3_600))

    def join(self) -> None:
        self.consumer.subscribe([self.topic])
        until(lambda: self._polled() or bool(self.consumer.assignment()))
        # An assignment is taken over step by step: it is there when a record of it comes.
        self.produce(1)
        self.read(1)

    def _polled(self) -> bool:
        assert self.consumer.poll(0.1) is None
        return False

    def produce(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(self.topic, b"x", partition=0)
        assert self._producer.flush(_PATIENCE_S) == 0
        self.end += count

    def read(self, count: int) -> list[int]:
        """That many by polls, or all that there are, if that is less."""
        got: list[int] = []
        wanted = 0 if self.paused else min(count, self.end - self.at)
        if not wanted:
            assert self.consumer.poll(_NOTHING_S) is None
        until(lambda: self._took(got) >= wanted)
        return got

    def _took(self, got: list[int]) -> int:
        while (message := self.consumer.poll(0.05 if got else 0.0)) is not None:
            self._returned([message], got)
        return len(got)

    def batch(self, count: int) -> list[int]:
        """The same by `consume`, which waits for as many as there are."""
        got: list[int] = []
        wanted = 0 if self.paused else min(count, self.end - self.at)
        self._returned(self.consumer.consume(wanted, _PATIENCE_S) if wanted else [], got)
        return got

    def _returned(self, messages: Sequence[Message], got: list[int]) -> None:
        for message in messages:
            assert message.error() is None, message.error()
            offset = message.offset()
            assert offset is not None
            got.append(offset)
            self.last, self.at, self.sought = message, offset + 1, False

    def here(self, offset: int = -1001, number: int = 0) -> TopicPartition:
        return TopicPartition(self.topic, number, offset)

    def position(self) -> object:
        """After a seek the client knows none, until it has returned a record; ours is where it reads on."""
        return None if self.sought else self.consumer.position([self.here()])

    def noted(self, note: str) -> TopicPartition:
        """Where the reader stands, with metadata."""
        return TopicPartition(self.topic, 0, self.at, metadata=note) if note else self.here(self.at)

    def successor(self) -> list[int]:
        """What the group's next member gets, once this one has left."""
        self.consumer.close()
        got: list[int] = []
        self.consumer, self.paused, self.at = self._made(), False, self.end
        self.consumer.subscribe([self.topic])
        until(lambda: self._polled_until_assigned(got))
        self.produce(1)
        until(lambda: self._took(got) and got[-1] == self.end - 1)
        return got

    def _polled_until_assigned(self, got: list[int]) -> bool:
        if (message := self.consumer.poll(0.1)) is not None:
            self._returned([message], got)
        return bool(self.consumer.assignment())

    def close(self) -> None:
        self.consumer.close()


Call = tuple[str, "Callable[[Side], object]"]


def told(call: Callable[[Side], object], side: Side) -> object:
    """What a call returns or raises, without what differs by nature: names, texts of errors."""
    try:
        return _plain(call(side))
    except KafkaException as error:
        return error.args[0].name()
    except (TypeError, ValueError, RuntimeError) as error:
        return type(error).__name__


def _plain(said: object) -> object:
    if isinstance(said, list):
        return [_plain(each) for each in said]
    if isinstance(said, TopicPartition):
        return (said.partition, said.offset, said.metadata, None if said.error is None else said.error.name())
    return said


def draw(seed: int, mode: str, steps: int) -> list[Call]:
    """A script of so many calls."""
    chance = random.Random(seed)
    return [_call(chance, mode) for _ in range(steps)]


def _call(chance: random.Random, mode: str) -> Call:
    count, note = chance.randint(1, 6), chance.choice(["", "", f"note {chance.randint(1, 9)}"])
    waits = {"asynchronous": False}
    calls: list[tuple[int, str, Callable[[Side], object]]] = [
        (6, f"produce {count}", lambda on: on.produce(count)),
        (8, f"read {count}", lambda on: on.read(count)),
        (4, f"batch {count}", lambda on: on.batch(count)),
        (2, "commit, wait", lambda on: on.consumer.commit(**waits)),
        (3, "commit the last, wait", lambda on: on.last and on.consumer.commit(on.last, **waits)),
        (3, f"commit the position, wait {note!r}", lambda on: on.consumer.commit(offsets=[on.noted(note)], **waits)),
        (3, "position", lambda on: on.position()),
        (2, "position elsewhere", lambda on: on.consumer.position([on.here(number=7)])),
        (3, "committed", lambda on: on.consumer.committed([on.here()], _PATIENCE_S)),
        (1, "ends", lambda on: on.consumer.get_watermark_offsets(on.here(), _PATIENCE_S)),
        (1, "assignment", lambda on: [each.partition for each in on.consumer.assignment()]),
        (1, "seek elsewhere", lambda on: on.consumer.seek(on.here(0, number=7))),
        (1, "seek to the position", _seek(lambda on: on.at)),
        (1, "pause", _pause(True)),
        (2, "resume", _pause(False)),
        (1, "pause elsewhere", lambda on: on.consumer.pause([on.here(number=7)])),
        (1, "store elsewhere", lambda on: on.consumer.store_offsets(offsets=[on.here(1, number=7)])),
        (1, "commit elsewhere", lambda on: on.consumer.commit(offsets=[on.here(number=7)], **waits)),
        (1, "consume none", lambda on: on.consumer.consume(0, 0.1)),
        (1, "assign a number", lambda on: on.consumer.assign(3)),
        (1, "subscribe to text", lambda on: on.consumer.subscribe(on.topic)),
    ]
    if mode == "stores":
        calls.append((6, "store the last", lambda on: on.last and on.consumer.store_offsets(on.last)))
        calls.append((3, "store the position", lambda on: on.consumer.store_offsets(offsets=[on.here(on.at)])))
    weights = [weight for weight, _, _ in calls]
    _, name, call = chance.choices(calls, weights)[0]
    return name, call


def _seek(where: Callable[[Side], int]) -> Callable[[Side], object]:
    def seek(on: Side) -> None:
        on.consumer.seek(on.here(where(on)))
        on.at, on.sought = where(on), True

    return seek


def _pause(paused: bool) -> Callable[[Side], object]:
    def pause(on: Side) -> None:
        (on.consumer.pause if paused else on.consumer.resume)([on.here()])
        on.paused = paused

    return pause
