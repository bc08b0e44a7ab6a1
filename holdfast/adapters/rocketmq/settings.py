"""Settings of a RocketMQSource: by RocketMQ's names, validated at construction."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypedDict, get_args

from holdfast.adapters.rocketmq.names import canonical
from holdfast.adapters.rocketmq.remoting import RemotingClient
from holdfast.adapters.rocketmq.remoting.network import credentials_of
from holdfast.errors import SettingError
from holdfast.plugin.assign import goes_by_weight, strategy_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from holdfast.adapters.rocketmq.remoting import Notice
    from holdfast.dedup.claims import ClaimStore
    from holdfast.dedup.coordinator import Coordinator
    from holdfast.dedup.groups import Strategy
    from holdfast.plugin.settings import Settings

Dedup = Literal["message", "position"]
RetryBy = Literal["in_place", "broker"]
Foreign = Literal["refuse", "warn"]

_STARTS = {
    "earliest": "earliest",
    "CONSUME_FROM_FIRST_OFFSET": "earliest",
    "latest": "latest",
    "CONSUME_FROM_LAST_OFFSET": "latest",
    "CONSUME_FROM_TIMESTAMP": "timestamp",
}
#: org.apache.rocketmq.common.topic.TopicValidator and Validators of 5.5.0: %, |, letters, digits, - and _.
_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
#: Java's consumeTimestamp: yyyyMMddHHmmss.
_STAMP = "%Y%m%d%H%M%S"

_ZERO_IS_FINE = frozenset({"broker_suspend_max_time_s", "max_reconsume_times"})


class PullOptions(TypedDict, total=False):
    """Options of a RocketMQSource beside name servers and group. See PullSettings."""

    subscriptions: Mapping[str, str]
    consume_from_where: str
    consume_timestamp: datetime | str | None
    dedup: Dedup
    retry: RetryBy
    max_reconsume_times: int
    foreign_members: Foreign
    message_model: str
    instance_name: str | None
    allocate_strategy: str | Strategy
    weight: int
    access_key: str | None
    secret_key: str | None
    tls: ssl.SSLContext | None
    lease_s: float
    max_poll_interval_s: float
    pull_batch_size: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: float
    pull_threshold_for_all: int
    pull_threshold_size_for_all: float
    broker_suspend_max_time_s: float
    poll_name_server_interval_s: float
    heartbeat_broker_interval_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    """The arguments of a RocketMQSource, with RocketMQ's names. `_s` is seconds, `_size_` is MiB.

    Raises:
        SettingError: names the setting, its value and the remedy.
    """

    #: Name servers, "host:port;host:port".
    namesrv: str
    #: The consumer group.
    group: str
    #: Topic -> tags, such as {"orders": "TagA || TagB"}; a topic that is not named is read with all its messages. All
    #: members of a group must subscribe to the same; one that does not is refused.
    subscriptions: Mapping[str, str] = field(default_factory=dict)
    #: Where a group begins in a topic in which it has no offset: "earliest" (as CONSUME_FROM_FIRST_OFFSET), "latest"
    #: (CONSUME_FROM_LAST_OFFSET), or CONSUME_FROM_TIMESTAMP. Queues and topics that are added later are read from their
    #: beginning: their messages are newer than the group's start.
    consume_from_where: str = "earliest"
    #: A datetime, or local time as yyyyMMddHHmmss.
    consume_timestamp: datetime | str | None = None
    #: "message": a message that its producer has stored twice (for example because the answer to its first send was
    #: lost) is handled once, identified by its UNIQ_KEY. It costs a claim for each message, on top of the queue's
    #: position: a claim sees the copy at another offset, but expires and fences nothing; the position is the queue's
    #: lease, and says for good what is done below it. "position": a message is identified by its position alone.
    dedup: Dedup = "message"
    #: "in_place": as the handler's Retry says; the order is kept. "broker": the broker delivers a failed message again
    #: through the group's retry topic, after its delay levels. After the last one the message goes to the handler's
    #: dead letter topic or, without one, the broker puts it into %DLQ%group. A retried message loses its place in the
    #: order.
    retry: RetryBy = "in_place"
    #: How often the broker delivers a message again.
    max_reconsume_times: int = 16
    #: If members without holdfast are in the broker's group at the start: "refuse" raises ForeignMembers, "warn" logs.
    #: Members that come later are logged in any case.
    foreign_members: Foreign = "refuse"
    #: Only CLUSTERING is supported.
    message_model: str = "CLUSTERING"
    #: A part of the name by which brokers know this process; None: the process id.
    instance_name: str | None = None
    #: "sticky": even over all topics together, with as few moves as possible. Or RocketMQ's own, topic by topic: "AVG",
    #: "AVG_BY_CIRCLE", "CONSISTENT_HASH"; or ByConfig, MachineRoom, MachineRoomNearby of holdfast.plugin.assign, which
    #: need arguments; or a function with their signature. Use the same in all members: the member that makes the plan
    #: applies its own.
    allocate_strategy: str | Strategy = "sticky"
    #: This member's share of the queues relative to other members', if the strategy is "sticky" or your own.
    weight: int = 1
    #: For brokers with access control.
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    #: For servers with TLS.
    tls: ssl.SSLContext | None = None
    #: A member that does not renew its lease for this long has lost its queues.
    lease_s: float = 10.0
    #: A member whose loop does not poll for this long has lost them too.
    max_poll_interval_s: float = 300.0
    #: Messages in one pull. Brokers return 32 at most by default, even if more are requested.
    pull_batch_size: int = 32
    #: Limits of messages, and of MiB, that wait here: of one queue, and of all. If paused queues fill the limit of all,
    #: each other queue may still have one pull.
    pull_threshold_for_queue: int = 1_000
    pull_threshold_size_for_queue: float = 16
    pull_threshold_for_all: int = 10_000
    pull_threshold_size_for_all: float = 64
    #: How long a broker holds a pull that finds nothing.
    broker_suspend_max_time_s: float = 15.0
    poll_name_server_interval_s: float = 30.0
    heartbeat_broker_interval_s: float = 30.0

    def __post_init__(self) -> None:
        if not self.namesrv:
            raise SettingError("namesrv", self.namesrv, 'give the name servers, such as "10.0.0.1:9876;10.0.0.2:9876"')
        if not _NAME.fullmatch(self.group):
            raise SettingError("group", self.group, "use letters, digits, % | - and _, 255 at most, as brokers do")
        self._check_choices()
        self._check_numbers()
        for expression in self.subscriptions.values():
            canonical(expression)
        object.__setattr__(self, "subscriptions", MappingProxyType(dict(self.subscriptions)))
        if (self.access_key is None) != (self.secret_key is None):
            given = "access_key" if self.secret_key is None else "secret_key"
            raise SettingError(given, "***", "give access_key and secret_key, or neither")

    def _check_choices(self) -> None:
        if self.message_model != "CLUSTERING":
            raise SettingError(
                "message_model",
                self.message_model,
                "use CLUSTERING: where every member gets every message there is nothing to hand over, and offsets are "
                "each member's own; for that, give each process a group of its own",
            )
        for name, known in (("dedup", Dedup), ("retry", RetryBy), ("foreign_members", Foreign)):
            value = getattr(self, name)
            if value not in get_args(known):
                raise SettingError(name, value, f"use one of {', '.join(map(repr, get_args(known)))}")
        if self.consume_from_where not in _STARTS:
            raise SettingError("consume_from_where", self.consume_from_where, f"use one of {', '.join(_STARTS)}")
        strategy = self.strategy
        if self.weight != 1 and not goes_by_weight(strategy):
            raise SettingError(
                "weight",
                self.weight,
                "leave it at 1, or allocate by 'sticky': RocketMQ's own strategies know no weights",
            )
        if (self.start == "timestamp") != (self.consume_timestamp is not None):
            raise SettingError(
                "consume_timestamp",
                self.consume_timestamp,
                'give it with consume_from_where="CONSUME_FROM_TIMESTAMP", and only then',
            )
        if self.consume_timestamp is not None:
            _milliseconds(self.consume_timestamp)

    def _check_numbers(self) -> None:
        for each in fields(self):
            if each.type not in ("int", "float"):
                continue
            name, value = each.name, getattr(self, each.name)
            whole = each.type == "int"
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                raise SettingError(name, value, f"use a {'whole ' if whole else ''}number")
            if not (0 < value < math.inf or (value == 0 and name in _ZERO_IS_FINE)):
                raise SettingError(name, value, "use a value above 0")
        if self.pull_batch_size > 1024:
            raise SettingError("pull_batch_size", self.pull_batch_size, "use 1024 or less; brokers give 32 by default")
        if self.broker_suspend_max_time_s > 60:
            raise SettingError("broker_suspend_max_time_s", self.broker_suspend_max_time_s, "use 60 s or less")

    @property
    def strategy(self) -> Strategy:
        """The strategy that shares the queues out. Raises SettingError."""
        return strategy_of(self.allocate_strategy, field="allocate_strategy")

    @property
    def start(self) -> Literal["earliest", "latest", "timestamp"]:
        """Where a group without an offset begins."""
        return _STARTS[self.consume_from_where]  # type: ignore[return-value]  # its values are these

    @property
    def start_ms(self) -> int:
        """The timestamp at which to begin, in milliseconds since 1970; 0 if none is set."""
        return 0 if self.consume_timestamp is None else _milliseconds(self.consume_timestamp)

    def connect(self, name: str | None = None, on_notice: Callable[[Notice], None] | None = None) -> RemotingClient:
        """Make a client of these servers. Sends nothing yet."""
        credentials = credentials_of(self.access_key, self.secret_key)
        return RemotingClient(self.namesrv, client_id=name, credentials=credentials, tls=self.tls, on_notice=on_notice)

    def check_app(self, settings: Settings) -> None:
        """Check the app's settings against these. Raises SettingError."""
        if settings.store_down == "open":
            raise SettingError(
                "store_down",
                "open",
                "use pause: the group itself is in the store, and who reads what is not known without",
            )
        if (drain_s := settings.drain_timeout_s) is not None and drain_s >= self.max_poll_interval_s:
            raise SettingError(
                "drain_timeout_s",
                drain_s,
                f"use less than max_poll_interval_s={self.max_poll_interval_s}: a drain does not poll",
            )


def check_claims(claims: ClaimStore | None, coordinator: Coordinator) -> None:
    """Check that the app uses the coordinator's store, which holds the queues' leases. Raises SettingError."""
    if claims is None:
        raise SettingError(
            "claims",
            None,
            "give the store that the coordinator has: a queue's lease lives there, and without one two members "
            "would read one queue",
        )
    theirs = getattr(coordinator, "store", claims)
    if theirs is not claims:
        raise SettingError(
            "claims",
            claims,
            f"give the coordinator's own store, {theirs!r}: plan and leases have to fail and recover together",
        )


def _milliseconds(when: datetime | str) -> int:
    if isinstance(when, str):
        try:
            when = datetime.strptime(when, _STAMP)  # noqa: DTZ007 - local time, as in Java
        except ValueError as error:
            raise SettingError(
                "consume_timestamp", when, 'use a datetime, or local time as "20260131235959" (yyyyMMddHHmmss)'
            ) from error
    if not isinstance(when, datetime):
        raise SettingError("consume_timestamp", when, "use a datetime, or local time as yyyyMMddHHmmss")
    return int(when.timestamp() * 1000)
