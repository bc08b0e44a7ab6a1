"""A real Kafka broker (KRaft, one node) from the jars that `make setup` puts into .servers/kafka/lib."""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic  # admin does not export them to type checkers

from tests.harness.processes import ServerFailed, end, free_ports, spawn, tail

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Mapping

_HERE = Path(__file__).parent / "kafka"
_LIB = Path(__file__).parents[3] / ".servers" / "kafka" / "lib"
_START_S = 180.0
_CALL_S = 60.0
#: What a broker answers about a topic that it is just about to have.
_NOT_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
)
# C1 only and the serial collector: a broker that lives for minutes on shared cores never earns C2's and G1's work back.
_JAVA = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")


def _jars() -> Path:
    return Path(os.environ.get("HOLDFAST_KAFKA_LIB", _LIB))


class KafkaServer:
    """One broker on free loopback ports with its data in a folder of its own.

    Raises ServerFailed with the end of the broker's log where it cannot start.
    """

    def __init__(self, lib: Path | None = None, *, properties: Mapping[str, str] | None = None) -> None:
        """Args: properties: more lines of server.properties."""
        self._properties = dict(properties or {})
        self._lib = lib or _jars()
        self._home = Path(tempfile.mkdtemp(prefix="holdfast-kafka-"))
        self.log_file = self._home / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: AdminClient | None = None
        self._groups: dict[str, Consumer] = {}
        self.bootstrap = ""

    # -- its life ------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Format the storage and start; returns when the broker answers and can hold groups' offsets."""
        java = shutil.which("java")
        if java is None or not any(self._lib.glob("kafka_*.jar")):
            missing = "no java on PATH" if java is None else f"no Kafka jars in {self._lib}"
            self._remove()
            msg = f"{missing}: run `make setup` (it needs a JDK, 17 or later, and Maven)"
            raise ServerFailed(msg)
        port, controller_port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{port}"
        settings = (_HERE / "server.properties").read_text()
        for name, value in (("port", port), ("controller_port", controller_port), ("data", self._home / "data")):
            settings = settings.replace(f"{{{name}}}", str(value))
        settings += "".join(f"\n{name}={value}" for name, value in self._properties.items())
        (self._home / "server.properties").write_text(settings)
        # Not beginning with "-", which one in 64 does: the tool would take it for an option.
        cluster = "h" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        formatting = spawn(
            self._command("kafka.tools.StorageTool", "format", "--standalone", "-t", cluster, "-c"), self.log_file
        )
        if formatting.wait(_START_S) != 0:
            raise self._failed("formatting its storage failed")
        self._run()
        return self

    def restart(self) -> None:
        """Stop and start on the same ports with the same data. Clients see a broker that was away for some seconds."""
        self._halt()
        self._run()

    def stop(self) -> None:
        """End the broker and remove its data. Idempotent."""
        self._close_clients()
        self._halt()
        self._remove()

    def __enter__(self) -> Self:
        """Started already or not, it is stopped at the end."""
        return self if self._process else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def log(self) -> str:
        """The last lines that the broker wrote."""
        return tail(self.log_file)

    def told(self) -> dict[str, Any]:
        """What another process needs to ask this broker: `SharedKafka(**told)`."""
        return {"bootstrap": self.bootstrap, "log_file": self.log_file}

    # -- what tests ask of it ------------------------------------------------------------------------------------------

    @property
    def admin(self) -> AdminClient:
        """An admin client; one for the server's life."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def create_topic(self, name: str, partitions: int = 8, config: Mapping[str, str] | None = None) -> None:
        """Returns when the topic has its leaders. Raises KafkaException."""
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        self.admin.create_topics([topic], request_timeout=_CALL_S)[name].result(_CALL_S)
        self._await_partitions(name, partitions)

    def delete_topic(self, name: str) -> None:
        """Returns when the broker no longer lists the topic."""
        self.admin.delete_topics([name], request_timeout=_CALL_S)[name].result(_CALL_S)
        self._await_partitions(name, 0)

    def set_session(self, group: str, timeout_ms: int) -> None:
        """How long the broker waits for members of a group of the consumer protocol."""
        to = ConfigEntry("consumer.session.timeout.ms", str(timeout_ms), incremental_operation=AlterConfigOpType.SET)
        what = ConfigResource(ResourceType.GROUP, group, incremental_configs=[to])
        self.admin.incremental_alter_configs([what], request_timeout=_CALL_S)[what].result(_CALL_S)

    def add_partitions(self, topic: str, total: int) -> None:
        """Let the topic grow to `total` partitions."""
        self.admin.create_partitions([NewPartitions(topic, total)], request_timeout=_CALL_S)[topic].result(_CALL_S)
        self._await_partitions(topic, total)

    def forbid(
        self, kind: Literal["topic", "group"], name: str, operation: AclOperation = AclOperation.DESCRIBE
    ) -> None:
        """Nobody may describe it any more, and hence do nothing else with it; brokers hear of that a moment later."""
        what = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}[kind]
        whom = (ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")
        rule = AclBinding(what, name, *whom, operation, AclPermissionType.DENY)
        self.admin.create_acls([rule], request_timeout=_CALL_S)[rule].result(_CALL_S)

    def partitions(self, topic: str) -> list[int]:
        """The topic's partitions; none = there is no such topic."""
        return sorted(self.admin.list_topics(timeout=_CALL_S).topics[topic].partitions) if self._has(topic) else []

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Partition -> committed offset; partitions without one are absent."""
        return {each.partition: each.offset for each in self.committed_raw(group, topic) if each.offset >= 0}

    def committed_raw(self, group: str, topic: str) -> list[TopicPartition]:
        """As the broker has it, with the metadata."""
        asked = [TopicPartition(topic, number) for number in self.partitions(topic)]
        return self._group(group).committed(asked, timeout=_CALL_S) if asked else []

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Partition -> offset that the next record will get."""
        return self._ends(topic, self.partitions(topic))

    def reset(self, group: str, offsets: Iterable[TopicPartition]) -> None:
        """Set a group's offsets as an operator does; refused by the broker while the group has members."""
        self._group(group).commit(offsets=list(offsets), asynchronous=False)

    # -- its parts -----------------------------------------------------------------------------------------------------

    def _close_clients(self) -> None:
        for consumer in self._groups.values():
            consumer.close()
        self._groups.clear()
        self._admin = None

    def _group(self, group: str) -> Consumer:
        # A consumer that never subscribes joins nothing; it may ask and, while the group is empty, set. Kept. (2.16.1's
        # AdminClient.list_consumer_group_offsets kills a process that asks before there is `__consumer_offsets`.)
        if group not in self._groups:
            self._groups[group] = Consumer(
                {"bootstrap.servers": self.bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
            )
        return self._groups[group]

    def _has(self, topic: str) -> bool:
        return topic in self.admin.list_topics(timeout=_CALL_S).topics

    def _ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        # The admin client asks each time who leads. A consumer keeps what it knew: it never finds the new partitions.
        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, number): newest for number in partitions}
        end_at = time.monotonic() + _CALL_S
        while asked:
            try:
                answers = self.admin.list_offsets(asked, request_timeout=_CALL_S)
                return {each.partition: answer.result(_CALL_S).offset for each, answer in answers.items()}
            except KafkaException as error:
                if error.args[0].code() not in _NOT_YET or time.monotonic() > end_at:
                    raise
                time.sleep(0.05)
        return {}

    def _await_partitions(self, topic: str, count: int) -> None:
        end_at = time.monotonic() + _CALL_S
        while time.monotonic() < end_at:
            found = self.admin.list_topics(timeout=_CALL_S).topics.get(topic)
            if (found is None and count == 0) or (
                found is not None
                and len(found.partitions) == count
                and all(each.leader >= 0 for each in found.partitions.values())
            ):
                self._ends(topic, range(count))  # a leader is named a moment before it knows that it is one
                return
            time.sleep(0.05)
        msg = f"{topic} has not got {count} partitions within {_CALL_S} s"
        raise ServerFailed(msg)

    def _command(self, *what: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}"
        # One argument, no shell: 'lib/*' is Java's own wildcard.
        return ["java", *_JAVA, logging, "-cp", f"{self._lib}/*", *what, str(self._home / "server.properties")]

    def _run(self) -> None:
        self._process = spawn(self._command("kafka.Kafka"), self.log_file)
        end_at = time.monotonic() + _START_S
        while time.monotonic() < end_at:
            if self._process.poll() is not None:
                raise self._failed(f"the broker ended with status {self._process.returncode}")
            try:
                if self.admin.list_topics(timeout=1.0).brokers:
                    # The first look-up of a group creates `__consumer_offsets`; here, not in the first test.
                    self._group("holdfast-tests-offsets").committed([TopicPartition("none", 0)], timeout=_CALL_S)
                    return
            except KafkaException:
                continue
        raise self._failed(f"the broker does not answer after {_START_S} s")

    def _failed(self, cause: str) -> ServerFailed:
        said = self.log
        self.stop()
        return ServerFailed(f"Kafka: {cause}; it said last:\n{said}")

    def _halt(self) -> None:
        if self._process is not None:
            end(self._process, patience_s=15.0)
            self._process = None

    def _remove(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)


class SharedKafka(KafkaServer):
    """A broker that another process has started: asked as one's own, ended there."""

    def __init__(self, bootstrap: str, log_file: Path) -> None:
        self.bootstrap, self.log_file = bootstrap, log_file
        self._lib, self._home = _jars(), log_file.parent
        self._admin: AdminClient | None = None
        self._groups: dict[str, Consumer] = {}

    def start(self) -> Self:
        """It runs."""
        return self

    def restart(self) -> None:
        """Others use it."""
        raise AssertionError("others use this broker: start one of your own")

    def stop(self) -> None:
        """Let it go."""
        self._close_clients()

    def __enter__(self) -> Self:
        return self
