"""How one member of a scenario is configured; travels to its process as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

Protocol = Literal["eager", "cooperative", "consumer"]
PROTOCOLS: tuple[Protocol, ...] = ("eager", "cooperative", "consumer")
Kind = Literal["holdfast", "careful", "default"]
KINDS: tuple[Kind, ...] = ("holdfast", "careful", "default")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """A member. `kind`: holdfast, or a plain confluent-kafka loop, written with care or left at its defaults."""

    name: str
    kind: Kind = "holdfast"
    bootstrap: str
    group: str
    #: Names, and patterns that begin with ^.
    topics: tuple[str, ...]
    ledger: str
    events: str
    protocol: Protocol
    #: None = claims=None: no store.
    redis_url: str | None
    namespace: str = "scenarios"
    #: The field of the value that is the business key; None = position dedup.
    key: str | None = None
    workers: int = 16
    ordering: Literal["key", "partition", "none"] = "key"
    drain_timeout_s: float = 10.0
    attempts: int = 5
    dead_letter: str | None = None
    session_timeout_ms: int = 6_000
    max_poll_interval_ms: int = 30_000

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> MemberConfig:
        fields = json.loads(text)
        return MemberConfig(**{**fields, "topics": tuple(fields["topics"])})

    def client(self) -> dict[str, Any]:
        """The client's configuration that all kinds share."""
        conf: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "client.id": self.name,
            "auto.offset.reset": "earliest",
            "max.poll.interval.ms": self.max_poll_interval_ms,
            # Five minutes by default: a new topic that matches a pattern would be seen then.
            "topic.metadata.refresh.interval.ms": 1_000,
        }
        if self.protocol == "consumer":
            return conf | {"group.protocol": "consumer"}  # session and heartbeat are the broker's to say
        strategy = "range" if self.protocol == "eager" else "cooperative-sticky"
        return conf | {
            "group.protocol": "classic",
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": self.session_timeout_ms,
            "heartbeat.interval.ms": 500,
        }
