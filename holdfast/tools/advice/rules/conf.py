"""A client's configuration as rules read it: whose it is, what is said, and what is in force where nothing is. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

from holdfast.errors import SettingError
from holdfast.plugin.budget import PollBudget
from holdfast.plugin.librdkafka import PROPERTIES
from holdfast.plugin.secret_names import MASK, is_secret
from holdfast.printable import without_credentials
from holdfast.tools.advice.rules.names import JAVA, ROCKETMQ, snake

if TYPE_CHECKING:
    from collections.abc import Mapping


_TRUE, _FALSE = frozenset({"true", "t", "1"}), frozenset({"false", "f", "0"})
#: What a deployment fills in: ${SESSION}, {{ session }}, $(SESSION), <session>.
_PLACEHOLDER = re.compile(r"\$\{|\{\{|\$\(|^<.*>$")
_LONGEST = 120


class Client(Enum):
    """The client whose names and defaults a configuration has."""

    LIBRDKAFKA = "librdkafka"  #: confluent-kafka, and other wrappers of librdkafka
    HOLDFAST = "holdfast"  #: the same names, for KafkaSource and KafkaConsumer: what they set is in force
    JAVA = "java"  #: org.apache.kafka:kafka-clients
    ROCKETMQ = "rocketmq"  #: org.apache.rocketmq:rocketmq-client, and those that use its names


#: What is in force where nothing is said: of librdkafka 2.16, kafka-clients 4.3, rocketmq-client 5.5. Tests hold the
#: clients' own word against these.
_DEFAULTS: Mapping[Client, Mapping[str, str]] = {
    Client.LIBRDKAFKA: {
        "group.protocol": "classic",
        "partition.assignment.strategy": "range,roundrobin",
        "session.timeout.ms": "45000",
        "heartbeat.interval.ms": "3000",
        "max.poll.interval.ms": "300000",
        "enable.auto.commit": "true",
        "enable.auto.offset.store": "true",
        "auto.commit.interval.ms": "5000",
        "auto.offset.reset": "largest",
        "isolation.level": "read_committed",
        "queued.min.messages": "100000",
        "queued.max.messages.kbytes": "65536",
        "fetch.queue.backoff.ms": "1000",
        "topic.metadata.refresh.interval.ms": "300000",
    },
    Client.HOLDFAST: {
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "auto.offset.reset": "earliest",
        "queued.min.messages": "10000",
        "queued.max.messages.kbytes": "32768",
        "fetch.queue.backoff.ms": "50",
    },
    Client.JAVA: {
        "group.protocol": "classic",
        "partition.assignment.strategy": (
            "org.apache.kafka.clients.consumer.RangeAssignor,"
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
        ),
        "session.timeout.ms": "45000",
        "heartbeat.interval.ms": "3000",
        "max.poll.interval.ms": "300000",
        "max.poll.records": "500",
        "enable.auto.commit": "true",
        "auto.commit.interval.ms": "5000",
        "auto.offset.reset": "latest",
        "isolation.level": "read_uncommitted",
        "metadata.max.age.ms": "300000",
    },
    Client.ROCKETMQ: {
        "message_model": "CLUSTERING",
        "consume_from_where": "CONSUME_FROM_LAST_OFFSET",
        "consume_thread_min": "20",
        "consume_thread_max": "20",
        "consume_concurrently_max_span": "2000",
        "pull_threshold_for_queue": "1000",
        "pull_batch_size": "32",
        "consume_message_batch_max_size": "1",
        "max_reconsume_times": "-1",
        "consume_timeout": "15",
        "instance_name": "DEFAULT",
        "poll_name_server_interval": "30000",
        "heartbeat_broker_interval": "30000",
        "persist_consumer_offset_interval": "5000",
    },
}

DEFAULTS = {**_DEFAULTS, Client.HOLDFAST: {**_DEFAULTS[Client.LIBRDKAFKA], **_DEFAULTS[Client.HOLDFAST]}}

KNOWN = {
    Client.LIBRDKAFKA: PROPERTIES,
    Client.HOLDFAST: PROPERTIES,
    Client.JAVA: JAVA,
    Client.ROCKETMQ: ROCKETMQ,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Facts that no configuration says. None = nobody has said, and rules that need it are silent.

    Raises:
        SettingError: a value that cannot be.
    """

    #: The longest that a handler takes for one record.
    handler_s: float | None = None
    #: Records that are handled between two polls. None: Java's max.poll.records, and else one, as poll() brings.
    batch: int | None = None
    #: Records that are handled at the same time.
    workers: int = 1
    #: How long a hand-over waits for what runs.
    drain_s: float = 0.0
    #: The client is polled while handlers run; of holdfast's own consumers that is known.
    polls_meanwhile: bool = False
    #: How long a process is away when it is started anew.
    restart_s: float | None = None

    def __post_init__(self) -> None:
        if self.restart_s is not None and not self.restart_s > 0:
            raise SettingError("restart_s", self.restart_s, "use a number of seconds above 0, or None")


class ClientConf:
    """A configuration. Immutable; its repr has no values.

    Args:
        said: by the client's own names; RocketMQ's also in Python's spelling (`pull_batch_size`). None = not said.
        client: whose names they are; None = as the names look.
        circumstances: what else is known.
    """

    def __init__(
        self, said: Mapping[str, object], *, client: Client | None = None, circumstances: Circumstances | None = None
    ) -> None:
        self.client = client or guess(said)
        self.circumstances = circumstances or Circumstances()
        self._spelled = {self._key(name): name for name, value in said.items() if value is not None}
        self._said = {key: said[name] for key, name in self._spelled.items()}

    def __repr__(self) -> str:
        return f"ClientConf({self.client.value}, {len(self._said)} settings)"

    @property
    def names(self) -> Mapping[str, str]:
        """The settings that are said: by the rules' names, as they are spelled."""
        return self._spelled

    def spelled(self, name: str) -> str:
        """The setting's name as this configuration's author writes it."""
        if name in self._spelled or self.client is not Client.ROCKETMQ:
            return self._spelled.get(name, name)
        written = [each for each in self._spelled.values() if each != each.lower()]
        return camel(name) if written or not self._spelled else name

    def said(self, name: str) -> bool:
        """Whether the configuration names it."""
        return name in self._said

    def raw(self, name: str) -> object:
        """The value as it is; None = not said."""
        return self._said.get(name)

    def text(self, name: str) -> str | None:
        """The value in force. None = there is none, or only the deployment knows."""
        if self.to_be_filled_in(name):
            return None
        value = self._said.get(name)
        return self._defaults.get(name) if value is None else _as_text(value)

    def number(self, name: str) -> int | None:
        """The value in force as a whole number; None also where it is none."""
        value = self.text(name)
        try:
            return None if value is None else int(value)
        except ValueError:
            return None

    def flag(self, name: str) -> bool | None:
        """The value in force as a flag."""
        value = self.text(name)
        return None if value is None else True if value.lower() in _TRUE else False if value.lower() in _FALSE else None

    def to_be_filled_in(self, name: str) -> bool:
        """Whether the value is a placeholder."""
        value = self._said.get(name)
        return isinstance(value, str) and _PLACEHOLDER.search(value) is not None

    def shown(self, name: str) -> str:
        """The value in force, for people: without credentials, and not longer than a line. Of a name that nobody knows
        no value is shown: it may be a misspelled password."""
        if name not in self._said:
            default = self._defaults.get(name)
            return "not set" if default is None else f"{default} (the default)"
        if is_secret(name):
            return MASK
        if name not in KNOWN[self.client]:
            return "(not shown)"
        value = without_credentials(_as_text(self._said[name]))
        if not value:
            return "empty"
        safe = "".join(each if each.isprintable() else "?" for each in value)
        return safe if len(safe) <= _LONGEST else safe[: _LONGEST - 1] + "…"

    @property
    def librdkafka(self) -> bool:
        """Whether librdkafka reads it."""
        return self.client in (Client.LIBRDKAFKA, Client.HOLDFAST)

    @property
    def kafka(self) -> bool:
        """Whether it is for Kafka."""
        return self.client is not Client.ROCKETMQ

    # -- of Kafka's ----------------------------------------------------------------------------------------------------

    @cached_property
    def consumer_protocol(self) -> bool:
        """Whether it asks for the consumer protocol (KIP-848)."""
        return (self.text("group.protocol") or "").lower() == "consumer"

    @cached_property
    def assignors(self) -> tuple[str, ...]:
        """The classic assignors in force, the favourite first, Java's by their short names; () = only the deployment
        knows, or the protocol has none."""
        said = self.text("partition.assignment.strategy")
        if said is None or self.consumer_protocol or self.client is Client.ROCKETMQ:
            return ()
        return tuple(_JAVA_ASSIGNORS.get(each, each) for each in map(str.strip, said.split(",")) if each)

    @cached_property
    def turn(self) -> PollBudget | None:
        """The work that one member may have to do between two polls. Raises SettingError: the circumstances cannot
        be."""
        known = self.circumstances
        polls_meanwhile = known.polls_meanwhile or self.client is Client.HOLDFAST
        if known.handler_s is None and not polls_meanwhile:
            return None
        return PollBudget(
            handler_s=known.handler_s or 0.0,
            workers=known.workers,
            batch=known.batch or (self.number("max.poll.records") if self.client is Client.JAVA else None) or 1,
            drain_s=known.drain_s,
            polls_meanwhile=polls_meanwhile,
        )

    # -- its parts -----------------------------------------------------------------------------------------------------

    @property
    def _defaults(self) -> Mapping[str, str]:
        return DEFAULTS[self.client]

    def _key(self, name: str) -> str:
        return snake(name) if self.client is Client.ROCKETMQ else name.strip()


_JAVA_ASSIGNORS = {
    f"org.apache.kafka.clients.consumer.{name}": short
    for name, short in (
        ("RangeAssignor", "range"),
        ("RoundRobinAssignor", "roundrobin"),
        ("StickyAssignor", "sticky"),
        ("CooperativeStickyAssignor", "cooperative-sticky"),
    )
}


def guess(said: Mapping[str, object]) -> Client:
    """Guess the client by these names: Java's, where a value names a class of its client's or a deserializer's; else
    the client that knows most of them; of Kafka's two librdkafka where both know as many, since this is a library of
    Python's."""
    if any("org.apache.kafka." in _as_text(value) for value in said.values()) or any(
        "." in str(said.get(name, "")) for name in ("key.deserializer", "value.deserializer")
    ):
        return Client.JAVA
    hits = {
        Client.LIBRDKAFKA: sum(name in PROPERTIES for name in said),
        Client.JAVA: sum(name in JAVA for name in said),
        Client.ROCKETMQ: sum(snake(name) in ROCKETMQ for name in said),
    }
    return max(hits, key=lambda client: hits[client])


def camel(name: str) -> str:
    """Write a name in Java's way: pull_batch_size -> pullBatchSize."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(_as_text, value))
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    return str(value).strip()
