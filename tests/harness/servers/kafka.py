"""A real Kafka (KRaft, one node or several) from the jars that `make setup` puts into .servers/kafka/lib."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.harness.processes import ServerFailed, free_ports, tail
from tests.harness.servers.kafka_asked import AskedKafka
from tests.harness.servers.kafka_node import KafkaNode, has_java, jars, java_tool, new_id
from tests.harness.waiting import until

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence

    from tests.harness.kafka_wire import KafkaWire

_START_S = 180.0
_CALL_S = 60.0
_ANSWER_S = 10.0
_DESCRIBED_S = 60.0


class KafkaServer(AskedKafka):
    """One broker, or several, on free loopback ports with their data in a folder of their own. Where there are several,
    each topic has a replica on each, and of three one may be away.

    Raises ServerFailed with the end of a broker's log where it cannot start.
    """

    def __init__(
        self,
        lib: Path | None = None,
        *,
        brokers: int = 1,
        lines: int = 0,
        listeners: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        port: int = 0,
    ) -> None:
        """Args:
        lines: so many further addresses, each by wires of its own that can be cut (`address`, `wires`).
        listeners: further addresses by their names, in capitals, each with its security protocol (`address`).
        properties: more lines of server.properties.
        port: of the first broker; 0 = a free one.
        """
        super().__init__("", brokers)
        self._listeners = {f"LINE{number}": "PLAINTEXT" for number in range(lines)} | dict(listeners or {})
        self._properties, self._port = dict(properties or {}), port
        self._lib = lib or jars()
        self._home = Path(tempfile.mkdtemp(prefix="holdfast-kafka-"))
        self._nodes: dict[int, KafkaNode] = {}

    # -- its life ------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Format the storage and start; returns when the brokers answer and can hold groups' offsets."""
        if not has_java() or not any(self._lib.glob("kafka_*.jar")):
            missing = f"no Kafka jars in {self._lib}" if has_java() else "no java on PATH"
            self._remove()
            msg = f"{missing}: run `make setup` (it needs a JDK, 17 or later, and Maven)"
            raise ServerFailed(msg)
        each, heap_mb = 2 + len(self._listeners), 512 if self._brokers == 1 else 256
        ports = free_ports(each * self._brokers)
        ports[0] = self._port or ports[0]
        nodes = [
            KafkaNode(
                number,
                self._home,
                self._lib,
                ports=ports[(number - 1) * each : number * each],
                listeners=self._listeners,
                heap_mb=heap_mb,
            )
            for number in range(1, self._brokers + 1)
        ]
        self._nodes = {each.number: each for each in nodes}
        self.bootstrap = ",".join(f"127.0.0.1:{each.port}" for each in nodes)
        cluster = new_id()
        formatting = [(each, each.format(cluster, nodes, self._properties)) for each in nodes]
        for node, process in formatting:
            if process.wait(_START_S) != 0:
                raise self._failed(node, "formatting its storage failed")
        self._run()
        return self

    def restart(self) -> None:
        """Stop and start on the same ports with the same data. Clients see a broker that was away for some seconds."""
        for each in self._nodes.values():
            each.halt(patience_s=15.0)
        self._run()

    def stop(self) -> None:
        """End the brokers and remove their data. Idempotent."""
        self._close_clients()
        for each in self._nodes.values():
            each.halt(patience_s=0.0 if self._brokers > 1 else 15.0)  # who is last of several waits for the others
        for each in self._nodes.values():
            each.close_wires()
        self._remove()

    def __enter__(self) -> Self:
        """Started already or not, it is stopped at the end."""
        return self if self._nodes else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def log_file(self) -> Path:
        """What the first broker writes."""
        return self._nodes[1].log_file

    @property
    def log(self) -> str:
        """The last lines that the brokers wrote."""
        return "\n".join(tail(self._home / f"broker-{number}.log", 15) for number in range(1, self._brokers + 1))

    def told(self) -> dict[str, Any]:
        """What another process needs to ask this broker: `SharedKafka(**told)`."""
        return {"bootstrap": self.bootstrap, "log_file": self.log_file}

    # -- what tests do to one of its brokers ---------------------------------------------------------------------------

    @property
    def brokers(self) -> list[int]:
        """Their numbers, those that are away too."""
        return list(self._nodes)

    def stop_broker(self, number: int = 1) -> None:
        """SIGTERM: it gives its leaderships and its groups to others, where there are any."""
        self._node(number).halt(patience_s=60.0)

    def kill_broker(self, number: int = 1) -> None:
        """SIGKILL: the others notice when its session ends, 9 s later."""
        self._node(number).halt(patience_s=0.0)

    def start_broker(self, number: int = 1) -> None:
        """On the same ports with the same data; returns when it has caught up with the others."""
        self._node(number).run()
        self._await_brokers()
        self.await_in_sync()

    def pause_broker(self, number: int = 1) -> None:
        """SIGSTOP: connections stay, answers do not come."""
        self._node(number).pause()

    def resume_broker(self, number: int = 1) -> None:
        """SIGCONT."""
        self._node(number).resume()

    def address(self, line: int | str) -> str:
        """The brokers as a client finds them by that line, or at the listener of that name."""
        return ",".join(f"127.0.0.1:{wire.port}" for wire in self.wires(line))

    def wires(self, line: int | str) -> list[KafkaWire]:
        """A line's, or a listener's, one to each broker."""
        return [each.wires[f"LINE{line}" if isinstance(line, int) else line] for each in self._nodes.values()]

    def certificate(self, listener: str, context: ssl.SSLContext) -> bytes | None:
        """What the first broker shows there now."""
        port = self.wires(listener)[0].port
        with (
            socket.create_connection(("127.0.0.1", port), _CALL_S) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            return connection.getpeercert(binary_form=True)

    def await_in_sync(self) -> None:
        """Returns when each partition has a leader and no replica is behind: then the next broker may go."""

        def behind() -> list[str]:
            topics = self.admin.list_topics(timeout=_CALL_S).topics.values()
            return [
                f"{topic.topic}-{each.id}"
                for topic in topics
                for each in topic.partitions.values()
                if each.leader < 0 or set(each.isrs) != set(each.replicas)
            ]

        self._await(lambda: not behind(), lambda: f"replicas of {behind()} have not caught up")

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition -> broker; -1 = none now."""
        found = self.admin.list_topics(timeout=_CALL_S).topics[topic].partitions
        return {number: each.leader for number, each in found.items()}

    def in_sync(self, topic: str, partition: int) -> list[int]:
        """The brokers whose replicas are not behind."""
        found: list[int] = self.admin.list_topics(topic, timeout=_CALL_S).topics[topic].partitions[partition].isrs
        return found

    def coordinator(self, group: str) -> int:
        """The broker that has this group."""

        def found() -> int:
            # Each time a new client: a broker that is not let in yet can make one forget all of them for good.
            asked = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            answer = asked.describe_consumer_groups([group])[group].result(_ANSWER_S)
            number: int = answer.coordinator.id
            return number

        return until(found, f"nobody has {group}", despite=(KafkaException, TimeoutError))

    def described(self, group: str) -> Any:
        """The group as its coordinator sees it. A busy machine may need long for that."""
        return self.admin.describe_consumer_groups([group], request_timeout=_DESCRIBED_S)[group].result(_DESCRIBED_S)

    def reassign(self, topic: str, replicas: Mapping[int, Sequence[int]]) -> None:
        """Move the replicas of partitions to these brokers, the first of each to lead; returns when they are there."""
        plan = [{"topic": topic, "partition": number, "replicas": [*each]} for number, each in replicas.items()]
        file = self._home / "reassignment.json"
        file.write_text(json.dumps({"version": 1, "partitions": plan}))
        tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        how = ("--bootstrap-server", self.bootstrap, "--reassignment-json-file", str(file), "--execute")
        subprocess.run(java_tool(self._lib, tool, *how), check=True, capture_output=True, timeout=_START_S)

        def there() -> bool:
            found = self.admin.list_topics(topic, timeout=_CALL_S).topics[topic].partitions
            return all(found[number].replicas == [*each] for number, each in replicas.items())

        self._await(there, lambda: f"{topic} is not where {plan} says")
        self.await_in_sync()
        self.elect_preferred(topic)

    def transactional_ids(self) -> str:
        """The producers that the coordinators know, as Kafka's own tool lists them."""
        command = java_tool(
            self._lib, "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", self.bootstrap
        )
        listed = subprocess.run([*command, "list"], check=True, capture_output=True, text=True, timeout=_START_S)
        return listed.stdout

    def elect_preferred(self, topic: str) -> None:
        """The first replica of each partition leads it again: after a restart others do."""
        asked = [TopicPartition(topic, number) for number in self.partitions(topic)]
        self.admin.elect_leaders(ElectionType.PREFERRED, asked).result(_CALL_S)

    # -- its parts -----------------------------------------------------------------------------------------------------

    def _node(self, number: int) -> KafkaNode:
        return self._nodes[number]

    def _run(self) -> None:
        for each in self._nodes.values():
            each.run()
        self._await_brokers()
        # The first look-up of a group creates `__consumer_offsets`; here, not in the first test.
        group, asked = self._group("holdfast-tests-offsets"), [TopicPartition("none", 0)]
        self._await(lambda: bool(group.committed(asked, timeout=_CALL_S)), lambda: "groups have no offsets")

    def _await_brokers(self) -> None:
        """Returns when all that run answer, and are in the cluster. Each is asked itself: of one that was killed the
        others say for a while that it is there."""
        for each in self._nodes.values():
            if each.process is not None:
                self._await_broker(each)

    def _await_broker(self, node: KafkaNode) -> None:
        asked = AdminClient({"bootstrap.servers": f"127.0.0.1:{node.port}", "log_level": 0})
        end_at = time.monotonic() + _START_S
        while time.monotonic() < end_at:
            if node.ended is not None:
                raise self._failed(node, f"the broker ended with status {node.ended}")
            try:
                if node.number in asked.list_topics(timeout=1.0).brokers:
                    return
            except KafkaException:
                continue
            time.sleep(0.05)
        raise self._failed(node, f"the broker does not answer after {_START_S} s")

    def _await(self, condition: Callable[[], bool], what: Callable[[], str]) -> None:
        until(condition, what, patience_s=_START_S, despite=(KafkaException,))

    def _failed(self, node: KafkaNode, cause: str) -> ServerFailed:
        said = node.log
        self.stop()
        return ServerFailed(f"Kafka: {cause}; it said last:\n{said}")

    def _remove(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)


class SharedKafka(KafkaServer):
    """A broker that another process has started: asked as one's own, ended there."""

    def __init__(self, bootstrap: str, log_file: Path) -> None:
        AskedKafka.__init__(self, bootstrap, 1)
        self._lib, self._home = jars(), log_file.parent
        self._log_file = log_file

    def start(self) -> Self:
        """It runs."""
        return self

    def restart(self) -> None:
        """Others use it."""
        raise AssertionError("others use this broker: start one of your own")

    def _node(self, number: int) -> KafkaNode:
        raise AssertionError("others use this broker: start one of your own")

    @property
    def log_file(self) -> Path:
        return self._log_file

    def stop(self) -> None:
        """Let it go."""
        self._close_clients()

    def __enter__(self) -> Self:
        return self
