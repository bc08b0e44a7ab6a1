"""The way to a strategy that moves little, played with real members on a real broker: what moves is what was said."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from holdfast.plugin.assign.kafka import range_
from holdfast.plugin.assign.members import Subscriber
from holdfast.records import Partition
from holdfast.timing import Deadline
from holdfast.tools.advice.emit.kafka import COOPERATIVE
from holdfast.tools.advice.emit.migration import Migration, migrate
from holdfast.tools.advice.emit.rehearsal import Living
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.tools.advice.emit.rehearsal import Rebalance
    from tests.golden.java_group import JavaGroup
    from tests.harness.servers.kafka import KafkaServer

pytestmark = pytest.mark.full

PARTITIONS = 12
NAMES = "abc"
RANGE = {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor"}
Owners = dict[int, str]


class Settled(NamedTuple):
    """A group at rest."""

    owners: Owners
    held_up: int


class Field:
    """A topic, and what is known of who has it. Members are called as in the rehearsal, whichever start they are at."""

    def __init__(self, kafka: KafkaServer) -> None:
        self.kafka = kafka
        self.group = self.topic = f"moves-{uuid.uuid4().hex[:8]}"
        kafka.create_topic(self.topic, PARTITIONS)
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        self.conf: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap, "group.id": self.group}
        self.conf |= {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
        self._until_known()

    def _until_known(self) -> None:
        """Until the group's coordinator knows the topic: one that was made a moment ago it may not. A classic group
        that is turned into one of the consumer protocol then forgets what its members have of it."""
        consumer, ends = Consumer({**self.conf, "group.protocol": "consumer", "log_level": 0}), Deadline(PATIENCE_S)
        consumer.subscribe([self.topic])
        while len(consumer.assignment()) < PARTITIONS:
            assert not ends.passed
            consumer.poll(0.05)
        consumer.close()

    def living(self, *, static: bool) -> Living:
        """The group as it begins, with the range strategy."""
        members = tuple(
            Subscriber(id=name, topics=frozenset({self.topic}), instance_id=name if static else None) for name in NAMES
        )
        partitions = frozenset(Partition(self.topic, number) for number in range(PARTITIONS))
        return Living(members=members, partitions=partitions, plan=range_(members, partitions))

    def send(self) -> None:
        """Some records into each partition."""
        for number in range(PARTITIONS):
            for _ in range(5):
                self._producer.produce(self.topic, b"x", partition=number)
        assert self._producer.flush(30) == 0

    def owners(self, members: int) -> Owners | None:
        """Who has which partition by the broker, whose client id is the member's name. None = it is not settled."""
        found = self.kafka.described(self.group)
        has = {
            each.partition: member.client_id for member in found.members for each in member.assignment.topic_partitions
        }
        settled = found.state.name == "STABLE" and len(found.members) == members and len(has) == PARTITIONS
        return has if settled else None

    def until_read(self, group: JavaMembers) -> None:
        """Until everything was read, and committed to the end: nothing is lost."""
        ends, last = Deadline(PATIENCE_S), self.kafka.end_offsets(self.topic)
        while self.kafka.committed(self.group, self.topic) != last:
            assert not ends.passed, (self.kafka.committed(self.group, self.topic), last)
        group.look()
        assert {(number, offset) for number, end in last.items() for offset in range(end)} <= group.read.keys()


class JavaMembers:
    """Members of Kafka's Java client; each start of one has another key in the process."""

    def __init__(self, field: Field, java: JavaGroup, *, static: bool) -> None:
        self._field, self._java, self._static = field, java, static
        self._keys: dict[str, str] = {}
        self._starts = 0
        self._owned: dict[str, set[int]] = defaultdict(set)
        #: What members that are there gave up since the group was settled last.
        self._given: Owners = {}
        self.read: Counter[tuple[int, int]] = Counter()

    def start(self, name: str, settings: Mapping[str, object]) -> None:
        self._starts += 1
        key = f"{name}{self._starts}"
        conf = {**self._field.conf, **settings, "client.id": name}
        if conf.get("group.protocol") != "consumer":
            conf["heartbeat.interval.ms"] = 200
        if self._static:
            conf["group.instance.id"] = name
        self._java.start(key, self._field.topic, conf)
        self._keys[name] = key

    def stop(self, name: str) -> None:
        self._java.stop(key := self._keys.pop(name))
        self.look()
        self._owned.pop(key, None)
        self._given = {number: owner for number, owner in self._given.items() if owner != name}

    def look(self) -> None:
        for member, what, numbers in self._java.events():
            match what:
                case "read":
                    self.read[numbers[0], numbers[1]] += 1
                case "gained":
                    self._owned[member].update(numbers)
                case _:
                    self._owned[member].difference_update(numbers)
                    self._given |= dict.fromkeys(numbers, member[0])

    def settled(self, restarted: str = "") -> Settled:
        """Who has what, once the broker and the members say the same; and what came back to others who had given it
        up."""

        def agreed() -> Owners | None:
            self.look()
            mine = {number: name for name, key in self._keys.items() for number in self._owned[key]}
            return mine if self._field.owners(len(self._keys)) == mine else None

        mine = until(agreed, lambda: self._owned)
        given, self._given = self._given, {}
        return Settled(mine, sum(mine[number] == name != restarted for number, name in given.items()))


def moves(before: Owners, after: Owners) -> int:
    return sum(before.get(number) != owner for number, owner in after.items())


def fits(said: Rebalance | None, before: Settled, after: Settled, *, halfway: bool) -> bool:
    """Whether it is what was said. While some are cooperative and some are not yet, who gets what of the eager ones'
    partitions decides by how many more have to move, and every implementation deals them out in another way."""
    told = (0, 0) if said is None else (len(said.movement.moves), said.held_up)
    seen = moves(before.owners, after.owners), after.held_up
    return all(abs(one - other) <= (2 if halfway else 0) for one, other in zip(told, seen, strict=True))


def play(field: Field, members: JavaMembers, migration: Migration, *, static: bool) -> list[object]:
    """Each restart as the steps say; what differed of what was said."""
    for name in NAMES:
        members.start(name, RANGE)
    before = members.settled()
    differ: list[object] = []
    for step in migration.steps:
        settings = {key: value for key, value, _ in step.settings}
        halfway = settings.get("partition.assignment.strategy") == COOPERATIVE["java"]
        for restart in step.restarts:
            field.send()
            members.stop(restart.member)
            if not static:
                after = members.settled()
                if not fits(restart.away, before, after, halfway=halfway):
                    differ.append((step.what, restart.member, "away", before, after, restart.away))
                before = after
            field.send()
            members.start(restart.member, settings)
            after = members.settled(restart.member)
            if not fits(restart.back, before, after, halfway=halfway):
                differ.append((step.what, restart.member, "back", before, after, restart.back))
            before = after
    field.until_read(members)
    for name in NAMES:
        members.stop(name)
    return differ


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("goal", ["cooperative", "consumer"])
def test_java_members_change_over_one_by_one_and_what_moves_is_what_was_said(
    kafka: KafkaServer, java_group: JavaGroup, goal: Any, static: bool
) -> None:
    field = Field(kafka)
    migration = migrate(goal, "java", field.living(static=static))
    assert [len(step.restarts) for step in migration.steps] == ([3, 3] if goal == "cooperative" else [3])
    differ = play(field, JavaMembers(field, java_group, static=static), migration, static=static)
    assert differ == []


class Crew:
    """Members of confluent-kafka, polled in turn by the test's thread."""

    def __init__(self, field: Field) -> None:
        self._field = field
        self.consumers: dict[str, Consumer] = {}
        self.errors: list[KafkaError] = []

    def start(self, name: str, settings: Mapping[str, object], *, static: bool = True) -> None:
        conf = {**self._field.conf, **settings, "client.id": name, "log_level": 0}
        if static:
            conf["group.instance.id"] = name
        self.consumers[name] = Consumer(conf)
        self.consumers[name].subscribe([self._field.topic])

    def stop(self, name: str) -> None:
        self.consumers.pop(name).close()

    def poll(self) -> None:
        for each in self.consumers.values():
            message = each.poll(0.02)
            if message is not None and (error := message.error()) is not None:
                self.errors.append(error)

    def settled(self) -> Owners:
        def shared() -> Owners | None:
            self.poll()
            mine = {each.partition: name for name, its in self.consumers.items() for each in its.assignment()}
            return mine if len(mine) == PARTITIONS and self._field.owners(len(self.consumers)) == mine else None

        return until(shared)


def test_static_members_of_confluent_kafka_go_from_range_to_the_consumer_protocol_and_nothing_moves(
    kafka: KafkaServer,
) -> None:
    field = Field(kafka)
    [step] = migrate("consumer", "confluent-kafka", field.living(static=True)).steps
    assert [restart.moved for restart in step.restarts] == [0, 0, 0]
    crew = Crew(field)
    for name in NAMES:
        crew.start(name, {"partition.assignment.strategy": "range"})
    before = crew.settled()
    for restart in step.restarts:
        crew.stop(restart.member)
        crew.start(restart.member, {key: value for key, value, _ in step.settings})
        assert crew.settled() == before, restart.member
    for name in NAMES:
        crew.stop(name)


def test_librdkafka_has_no_way_to_the_cooperative_one_but_by_stopping_all(kafka: KafkaServer) -> None:
    field = Field(kafka)
    [step] = migrate("cooperative", "confluent-kafka", field.living(static=False)).steps
    assert "stop all" in step.what
    with pytest.raises(KafkaException, match="online migration"):
        Consumer({**field.conf, "partition.assignment.strategy": "cooperative-sticky,range"})
    crew = Crew(field)
    crew.start("a", {"partition.assignment.strategy": "range"}, static=False)
    crew.settled()
    crew.start("b", {key: value for key, value, _ in step.settings}, static=False)
    ends = Deadline(PATIENCE_S)
    while not crew.errors:
        assert not ends.passed
        crew.poll()
    assert {each.code() for each in crew.errors} == {KafkaError.INCONSISTENT_GROUP_PROTOCOL}
    for name in "ab":
        crew.stop(name)
