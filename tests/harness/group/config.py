"""How one member of a scenario is configured; travels to its process as JSON."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from holdfast import Audit, FileEvents, RedisClaims

#: How a group shares partitions out: three ways on Kafka; on RocketMQ each kind of member has its own.
Protocol = Literal["eager", "cooperative", "consumer", "rocketmq"]
KAFKA: tuple[Protocol, ...] = ("eager", "cooperative", "consumer")
EVERYWHERE: tuple[Protocol, ...] = (*KAFKA, "rocketmq")
Kind = Literal["holdfast", "loop", "careful", "default", "push"]
KINDS: tuple[Kind, ...] = ("holdfast", "loop", "careful", "default", "push")


def kinds_on(protocol: Protocol) -> tuple[Kind, ...]:
    """Who can be a member there."""
    return ("holdfast", "push") if protocol == "rocketmq" else ("holdfast", "loop", "careful", "default")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """A member. `kind`: holdfast; a loop around its KafkaConsumer; a plain confluent-kafka loop, written with care or
    left at its defaults; or rocketmq-client-python's PushConsumer alone."""

    name: str
    kind: Kind = "holdfast"
    #: Of Kafka the bootstrap servers, of RocketMQ the name server.
    bootstrap: str
    group: str
    #: Names, and patterns that begin with ^.
    topics: tuple[str, ...]
    ledger: str
    events: str
    protocol: Protocol
    #: None = claims=None: no store.
    redis_url: str | None
    #: Of a Redis Cluster: ports of its nodes, as text, and those where they are reached.
    redis_ports: dict[str, int] = field(default_factory=dict)
    shards: int = 1
    namespace: str = "scenarios"
    #: The field of the value that is the business key; None = position dedup.
    key: str | None = None
    workers: int = 16
    ordering: Literal["key", "partition", "none"] = "key"
    drain_timeout_s: float = 10.0
    handler_timeout_s: float | None = None
    handler_grace_s: float = 5.0
    attempts: int = 5
    dead_letter: str | None = None
    #: Whether the intake is held after an assignment, as by default.
    ramp: bool = True
    session_timeout_ms: int = 6_000
    max_poll_interval_ms: int = 30_000
    #: A folder for its audit's events; None = no audit. And whether those name its business keys.
    audit: str | None = None
    audit_keys: Literal["none", "hashed", "plain"] = "none"
    #: A static member: its name is its group.instance.id.
    static: bool = False
    #: A file that names the address of its HTTP endpoint; None = it has none.
    endpoint: str | None = None
    #: A file: the member has begun when its process is told so by that file, and says that it waits for it by another
    #: (`<go>.waits`). None = at once.
    go: str | None = None

    #: More of the client's configuration, for members on Kafka.
    conf: dict[str, Any] = field(default_factory=dict)

    def claims(self) -> RedisClaims | None:
        """Its store, where it has one."""
        if self.redis_url is None:
            return None
        ports = self.redis_ports
        return RedisClaims.from_url(
            self.redis_url,
            namespace=self.namespace,
            shards=self.shards,
            address_remap=(lambda place: (place[0], ports.get(str(place[1]), place[1]))) if ports else None,
        )

    def audited(self) -> Audit | None:
        """How it tells what it does, where the scenario asks for it."""
        if self.audit is None:
            return None
        return Audit(FileEvents(self.audit), member=self.name, keys=self.audit_keys, progress_s=1.0)

    def wait_for_go(self) -> None:
        """Everything is imported and made: say so, and return when the file is there."""
        if self.go is not None:
            Path(f"{self.go}.waits").touch()
            while not Path(self.go).exists():
                time.sleep(0.01)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> MemberConfig:
        fields = json.loads(text)
        return MemberConfig(**{**fields, "topics": tuple(fields["topics"])})

    def client(self) -> dict[str, Any]:
        """The client's configuration that all kinds on Kafka share."""
        conf: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "client.id": self.name,
            "auto.offset.reset": "earliest",
            "max.poll.interval.ms": self.max_poll_interval_ms,
            # Five minutes by default: a new topic that matches a pattern would be seen then.
            "topic.metadata.refresh.interval.ms": 1_000,
            **self.conf,
        }
        if self.static:
            conf["group.instance.id"] = self.name
        if self.protocol == "consumer":
            return conf | {"group.protocol": "consumer"}  # session and heartbeat are the broker's to say
        strategy = "range" if self.protocol == "eager" else "cooperative-sticky"
        return conf | {
            "group.protocol": "classic",
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": self.session_timeout_ms,
            "heartbeat.interval.ms": 500,
        }
