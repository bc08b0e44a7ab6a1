"""Kafka twice: the model in virtual time, and the server of the run. A script asks both through `KafkaStage`."""

from __future__ import annotations

import struct
import uuid
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from holdfast.adapters.kafka import faults
from holdfast.adapters.kafka.callbacks import _FATES
from holdfast.adapters.kafka.quirks import leave_static
from holdfast.adapters.kafka.source import KafkaSource
from holdfast.adapters.kafka.wire import answer, compact, exchange, request
from holdfast.records import Partition
from holdfast.runtime import MACHINE
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_group import CommitRequest
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from holdfast.timing import Deadline
from tests.contracts.kafka.test_source import PROTOCOLS
from tests.harness.witness import Clock, Seen, Witness, in_no_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.testing.brokers.kafka_group import Rebalancing
    from holdfast.testing.scheduler import Scheduler
    from tests.harness.servers.kafka import KafkaServer

_LEAVE_GROUP, _OFFSET_COMMIT, _HEARTBEAT = 13, 8, 68


class KafkaStage(Protocol):
    """A topic, a group of one protocol, and what is done to them. A partition is its number."""

    protocol: Rebalancing
    clock: Clock

    def member(self, name: str, **static: str) -> Witness:
        """One that has joined, or is about to. `static_id`: its name."""
        ...

    def close(self, member: Witness, *, leave: bool = False) -> None: ...

    def produce(self, number: int, count: int) -> None: ...

    def abort(self, number: int, count: int) -> None:
        """A transaction of so many records that was given up: they, and its marker, are offsets without a record."""
        ...

    def expire(self, number: int, first: int) -> None:
        """What lies before that offset is deleted."""
        ...

    def grow(self, partitions: int) -> None: ...

    def delete(self) -> None:
        """The topic."""
        ...

    def make_again(self, partitions: int) -> None: ...

    def committed(self, number: int) -> int | None:
        """As the broker has it."""
        ...

    def reset(self, number: int, offset: int) -> bool:
        """As an operator does. False = refused."""
        ...

    def put_out(self, member: Witness) -> None:
        """The coordinator takes its seat, as at the end of its session; its process is not told."""
        ...

    def commit_as(self, member: Witness, number: int, offset: int, *, epoch: int = 0, known: bool = True) -> str:
        """What the coordinator answers to a commit in that member's name, whose generation is off by so much, or of a
        member id that it has never heard of."""
        ...


# ---- the model
class Model:
    def __init__(self, scheduler: Scheduler, protocol: Rebalancing, partitions: int) -> None:
        self._scheduler, self.protocol = scheduler, protocol
        self._broker = MemoryBroker(scheduler.process("kafka", preempted=False).runtime, orders=partitions)
        self._group = self._broker.group("g", protocol=protocol)
        self.clock = Clock(scheduler.process("script").runtime)

    def member(self, name: str, **static: str) -> Witness:
        runtime = self._scheduler.process(name).runtime
        source = MemoryPartitionedSource(
            self._broker,
            name=name,
            runtime=runtime,
            session_timeout_s=6.0,
            heartbeat_s=0.5,
            static_id=static.get("static_id"),
        )
        made = Witness(source, "orders", runtime)
        self.clock.members.append(made)
        return made

    def close(self, member: Witness, *, leave: bool = False) -> None:
        self.clock.members.remove(member)
        member.close(leave=leave)

    def produce(self, number: int, count: int) -> None:
        self._broker.produce("orders", number, *"x" * count)

    def abort(self, number: int, count: int) -> None:
        self._broker.leave_out("orders", number, count + 1)

    def expire(self, number: int, first: int) -> None:
        self._broker.expire("orders", number, first)

    def grow(self, partitions: int) -> None:
        self._broker.create("orders", partitions)

    def delete(self) -> None:
        self._broker.remove("orders")

    def make_again(self, partitions: int) -> None:
        self._broker.create("orders", partitions)

    def committed(self, number: int) -> int | None:
        return self._group.offset(Partition("orders", number))

    def reset(self, number: int, offset: int) -> bool:
        return self._group.reset(Partition("orders", number), offset)

    def put_out(self, member: Witness) -> None:
        with self._broker.changed:
            self._group.leave(_memory(member).client.id)

    def commit_as(self, member: Witness, number: int, offset: int, *, epoch: int = 0, known: bool = True) -> str:
        source, partition = _memory(member), Partition("orders", number)
        member_id = source.client.id if known else -1
        self._broker.settle()
        with self._broker.changed:
            sent = CommitRequest(source, member_id, source.client.epoch + epoch, {partition: offset}, {}, "")
            return self._group.commit_all(sent)[partition].value


def _memory(member: Witness) -> MemoryPartitionedSource:
    assert isinstance(member.source, MemoryPartitionedSource)
    return member.source


def on_model(protocol: Rebalancing, script: Callable[[KafkaStage], Seen], partitions: int) -> Seen:
    """What the script sees there, in no time."""
    return in_no_time(lambda scheduler: Model(scheduler, protocol, partitions), script)


# ---- the server
class Server:
    def __init__(self, kafka: KafkaServer, protocol: Rebalancing, partitions: int) -> None:
        self._kafka, self.protocol = kafka, protocol
        self._group = self._topic = f"twin-{uuid.uuid4().hex[:8]}"
        kafka.create_topic(self._topic, partitions)
        self._conf = {"bootstrap.servers": kafka.bootstrap, "log_level": 0}
        self.clock = Clock(MACHINE)

    def member(self, name: str, **static: str) -> Witness:
        conf = {
            **self._conf,
            **PROTOCOLS[self.protocol],
            "group.id": self._group,
            "client.id": name,
            "topic.metadata.refresh.interval.ms": 200,
        }
        made = Witness(KafkaSource(conf, assignment="keep", **static), self._topic, MACHINE)  # type: ignore[arg-type]
        self.clock.members.append(made)
        return made

    def close(self, member: Witness, *, leave: bool = False) -> None:
        self.clock.members.remove(member)
        member.close(leave=leave)

    def end(self) -> None:
        for each in list(self.clock.members):
            each.on_revoked = lambda _: None
            self.close(each)

    def produce(self, number: int, count: int) -> None:
        self._produce(Producer(self._conf), number, count)

    def _produce(self, producer: Producer, number: int, count: int) -> None:
        for _ in range(count):
            producer.produce(self._topic, "x", partition=number)
        assert producer.flush(20) == 0

    def abort(self, number: int, count: int) -> None:
        producer = Producer({**self._conf, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(20)
        producer.begin_transaction()
        self._produce(producer, number, count)
        producer.abort_transaction(20)

    def expire(self, number: int, first: int) -> None:
        where = TopicPartition(self._topic, number, first)
        self._kafka.admin.delete_records([where])[where].result(20)

    def grow(self, partitions: int) -> None:
        self._kafka.add_partitions(self._topic, partitions)

    def delete(self) -> None:
        self._kafka.delete_topic(self._topic)

    def make_again(self, partitions: int) -> None:
        self._kafka.create_topic(self._topic, partitions)

    def committed(self, number: int) -> int | None:
        return self._kafka.committed(self._group, self._topic).get(number)

    def reset(self, number: int, offset: int) -> bool:
        try:
            self._kafka.reset(self._group, [TopicPartition(self._topic, number, offset)])
        except KafkaException:
            return False
        return True

    def put_out(self, member: Witness) -> None:
        member_id, _ = _place(member)
        if self.protocol == "consumer":  # a heartbeat, with the epoch of one that leaves
            head = b"\0" + compact(self._group) + compact(member_id) + struct.pack(">i", -1)
            said = head + b"\0\0" + struct.pack(">i", -1) + b"\0\0\0" + b"\0"
            assert leave_static.decode_heartbeat(self._ask(request(_HEARTBEAT, 0, said))) == 0
        else:
            reply = self._ask(request(_LEAVE_GROUP, 0, _text(self._group) + _text(member_id)))
            assert answer(reply).int16() == 0

    def commit_as(self, member: Witness, number: int, offset: int, *, epoch: int = 0, known: bool = True) -> str:
        """OffsetCommit, version 9: the first that knows epochs."""
        member_id, generation = _place(member)
        one = struct.pack(">iqi", number, offset, -1) + compact("") + b"\0"
        topic = compact(self._topic) + b"\2" + one + b"\0"
        head = compact(self._group) + struct.pack(">i", generation + epoch)
        sent = b"\0" + head + compact(member_id if known else "nobody") + b"\0" + b"\2" + topic + b"\0"
        reply = answer(self._ask(request(_OFFSET_COMMIT, 9, sent)))
        reply.skip_tags()
        reply.int32()  # throttle time
        assert reply.varint() == 2
        assert reply.compact_text() == self._topic
        assert reply.varint() == 2
        reply.int32()
        code = reply.int16()
        return _FATES[faults.commit_fate(KafkaError(code) if code else None)].value

    def _ask(self, sent: bytes) -> bytes:
        host, _, port = self._kafka.bootstrap.rpartition(":")
        return exchange(host, int(port), None, sent, Deadline(10.0, MACHINE))


def _place(member: Witness) -> tuple[str, int]:
    """Its member id, and its generation or epoch, as librdkafka has them: "CGMDv2:", the generation, names."""
    source: Any = member.source
    raw: bytes = source._consumer.consumer_group_metadata()
    assert raw.startswith(b"CGMDv2:"), raw
    [generation] = struct.unpack("<i", raw[7:11])
    return source._consumer.memberid(), generation


def _text(said: str) -> bytes:
    return struct.pack(">h", len(said)) + said.encode()


def on_server(kafka: KafkaServer, protocol: Rebalancing, script: Callable[[KafkaStage], Seen], partitions: int) -> Seen:
    """What it sees on a real broker."""
    stage = Server(kafka, protocol, partitions)
    try:
        return deepcopy(script(stage))  # members are told of their end as well
    finally:
        stage.end()
