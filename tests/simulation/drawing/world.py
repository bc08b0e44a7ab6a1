"""World: all input of a simulated run, as frozen data. A seed makes a world; a world that failed is kept as data.

Times are virtual seconds since the world began. Each part may be left out or made smaller without changing the meaning
of the rest, so that a world can shrink.
"""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from holdfast.plugin.handlers import BatchOf  # noqa: TC001 - `_read` looks at the fields' types
from holdfast.plugin.own_loop.user_loop import DoneWhen  # noqa: TC001
from holdfast.plugin.retrying.letter_limit import DeadLetterLimit  # noqa: TC001
from holdfast.plugin.settings import Settings  # noqa: TC001
from tests.simulation.brokers.kafka_slips import SlipKind  # noqa: TC001

W = TypeVar("W")

#: The version of the JSON. A world of another version is refused, since its meaning may have changed.
VERSION = 1

#: "kafka": Kafka's partitions. "queues": RocketMQ's queues, assigned by a coordinator in the store of claims. "leased":
#: RocketMQ's messages, one by one. "pushed": RocketMQ's queues, assigned by a push client.
BrokerKind = Literal["kafka", "queues", "leased", "pushed"]
#: Kinds whose records are acknowledged one by one, in any order.
LEASED: tuple[BrokerKind, ...] = ("leased", "pushed")
Protocol = Literal["eager", "cooperative", "consumer"]
Kind = Literal["plain", "async", "batch", "async batch"]
StoreKind = Literal["specification", "scripts", "digests", "database"]
OnSignal = Literal["close", "end", "go on"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineClock:
    """The difference of a process' clock from the world's."""

    offset_s: float = 0.0
    rate: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic that exists from the start."""

    name: str
    partitions: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """One handler of each member: the arguments of `Holdfast.handler`."""

    name: str
    topics: tuple[str, ...]
    kind: Kind = "plain"
    #: Whether it has a business key.
    keyed: bool = False
    #: True = one scope for all such handlers; False = a scope for each group and topic.
    shared_scope: bool = False
    attempts: int = 3
    wait_initial_s: float = 0.01
    wait_max_s: float = 0.05
    multiplier: float = 2.0
    jitter_s: float = 0.01
    #: Records whose plan is `hopeless` are not retried: by `Retry.retry_on`, or by `Retry.give_up_on`.
    retry_on: bool = False
    give_up_on: bool = False
    dead_letter: bool = True
    letter_too_large: Literal["stop", "without_value"] = "stop"
    #: "kafka": the delays of its retry topics, one topic each; and the names of the topics.
    delays_s: tuple[float, ...] = ()
    topic_name: str = "{topic}.{group}.retry.{delay}"
    limit: DeadLetterLimit | None = None
    batch: BatchOf | None = None
    #: A batch fails with `BatchFailed`, which names the records that are planned to fail.
    by_record: bool = False
    timeout_s: float | None = None
    #: "database": it runs in a transaction in which its records are marked, and writes their effects in it.
    transaction: bool = False

    def matches(self, topic: str) -> bool:
        """Whether the handler gets that topic's records."""
        return any(re.match(each, topic) if each.startswith("^") else each == topic for each in self.topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """How a user's own loop uses `KafkaConsumer`."""

    done_when: DoneWhen = "next_poll"
    #: Records a call; 1 = `poll`. And how long a call waits.
    at_most: int = 1
    wait_s: float = 0.1
    #: "commit": it commits after so many records, and when a call returns none.
    commit_after: int = 1
    #: Whether it reports what it has handled in on_revoke; and before it closes.
    says_at_revoke: bool = True
    says_at_end: bool = True
    #: True = a failed record is given back, and returned again; False = it is passed over as done.
    gives_back: bool = True
    #: "explicit": so many threads handle the records, and report each.
    threads: int = 0
    #: When a signal handler raises in it: it closes and ends, ends at once, or goes on.
    on_signal: OnSignal = "close"
    #: The odds of a seek in each round: to its position, back, before all that is done, or ahead.
    seeks: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetches:
    """How Kafka's client fetches ahead (`brokers/kafka_prefetch.py`)."""

    #: The most records of one partition in a response (`max.partition.fetch.bytes`).
    records: int = 50
    #: Nothing is fetched while so many messages are queued (`queued.min.messages`).
    queued: int = 200
    #: A partition that is not fetched for that reason is looked at again after so long (`fetch.queue.backoff.ms`).
    backoff_s: float = 1.0
    #: The time of a fetch and its response.
    way_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One record, and its handler's plan for it."""

    at_s: float = 0.0
    topic: str
    partition: int = 0
    #: The message's key: records of one key are in order.
    key: str | None = None
    #: The business key: records of one are one piece of work. None = it is missing, if the handler has a key.
    unit: str | None = None
    takes_s: float = 0.0
    #: So many calls for it fail, at any member; so many hang for `hang_s` before that.
    fails: int = 0
    #: Its calls fail with an error that the handler's retries may give up on.
    hopeless: bool = False
    hangs: int = 0
    hang_s: float = 0.0
    #: Its handler stops when told to: a coroutine on cancellation, a function by looking at `cancelled`.
    heeds: bool = True
    #: The client cannot read it.
    unreadable: bool = False
    #: Its dead letter is too large for any topic, unless it is sent without its value.
    large: bool = False


#: Faults, and acts of people. `Fault.member` is an index among the members that live then, modulo their number.
FaultKind = Literal[
    "crash",  #: a member's process is killed; a new one starts after `for_s`
    "stall",  #: a member's process is frozen for `for_s`
    "term",  #: a member is asked to stop; `count` times, the second after `for_s`
    "join",  #: one more member joins
    "lose",  #: the broker takes a member's partitions away
    "silent",  #: the store hears and does not answer, for `for_s`
    "deaf",  #: the store does not hear, for `for_s`
    "slow",  #: calls of the store take up to `amount` longer each way, for `for_s`
    "failover",  #: the store loses what it acknowledges in the next `for_s`
    "empty",  #: the store loses everything
    "forbid",  #: the store refuses credentials, for `for_s`
    "lossy",  #: a part `amount` of the calls to the store is lost, unanswered or late, for `for_s`
    "refuse",  #: the next `count` commits of about half of the partitions are refused, and may be retried; RocketMQ's
    #: broker refuses none, so they arrive a second time, late; of leased messages, acknowledgements are not answered
    "letters",  #: dead letters are refused, for `for_s`
    "grow",  #: a topic gets `count` more partitions
    "reset",  #: all members leave, an offset is set to the part `amount` of its log, and the members come back
    "foreign",  #: while members run another program commits an offset of a partition: behind the group's by the part
    #: `amount` of what lies before it (`count` 1), or beyond it by that part of what the log still has (2)
    "forget",  #: all members leave, the broker forgets the group's offsets, and the members come back after `for_s`
    "compact",  #: compaction removes about half of the records of a partition
    "expire",  #: retention deletes the first part `amount` of a partition's log, whether or not it is handled
    "markers",  #: `count` transaction markers at the end of a partition
    "remake",  #: a topic is deleted, and made again after `for_s`
    "leaderless",  #: a partition has no leader, for `for_s`
    "resend",  #: a producer sends the last `count` records of a partition once more
    "cut",  #: between a member and the broker requests (`count` 1), answers (2) or both (3) are lost, for `for_s`
    "late",  #: they arrive `amount` later each way, for `for_s`
    "twice",  #: a member's commits arrive a second time, `amount` later, for `for_s`
    "interrupt",  #: Ctrl-C in a member's first thread, in the wait of that number (`place`) from then on; `count`
    #: times, the second after `for_s`
    #: The rest needs the store "database".
    "unanswered",  #: the next `count` COMMITs of effects have no answer; with an odd `place` they do not arrive
    "conflict",  #: the next `count` transactions with effects are undone to end a conflict
    "freeze",  #: the next member that has an effect in an open transaction is frozen there for `for_s`
    "terminate",  #: the connection of the next transaction with an effect is ended by the server
]

#: Faults that take no partition away from its owner, and change the broker's answers only in time. A slow store is none
#: of them: heartbeats of a group that is kept in the store may come too late.
_GENTLE: frozenset[FaultKind] = frozenset(
    {"term", "join", "letters", "grow", "compact", "expire", "markers", "resend", "late", "twice"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault."""

    at_s: float
    kind: FaultKind
    member: int = 0
    for_s: float = 0.0
    count: int = 1
    amount: float = 0.0
    #: Index of a partition among all, modulo their number.
    place: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The input of one simulated run."""

    #: Decides the order of tasks that may run, and nothing else.
    seed: int = 0
    #: Woken tasks go on late, by chance.
    jitter: bool = True
    #: The odds of a switch of tasks where a clock is read.
    yield_odds: float = 0.01
    broker: BrokerKind = "kafka"
    #: "queues": records without a business key are claimed by their message id as well.
    by_message: bool = False
    #: "leased": how long a delivery hides its message.
    message_lease_s: float = 2.0
    #: "kafka": the group protocol.
    protocol: Protocol = "cooperative"
    #: "kafka": `auto.offset.reset`, for partitions in which the group never had an offset.
    begins: Literal["earliest", "latest"] = "earliest"
    #: Whether members are static.
    static: bool = False
    #: How clients skip records; None = not at all.
    slips: SlipKind | None = None
    #: "kafka": how clients fetch ahead; None = they fetch what a poll asks for, one partition after the other.
    fetches: Fetches | None = None
    session_timeout_s: float = 1.0
    max_poll_interval_s: float = 300.0
    #: How long a member waits for the broker's answer.
    request_timeout_s: float = 5.0
    #: The executable specification; the shipped Lua scripts (which need `lupa`), with plain keys or digests of keys; or
    #: the shipped store in a database, which has the effects of handlers as well.
    store: StoreKind = "specification"
    #: "database": after so long a transaction is ended in which nothing happens.
    idle_s: float = 45.0
    #: The lease of the store's sessions; and how long a process waits for the store's reply.
    lease_s: float = 1.5
    store_timeout_s: float = 0.3
    #: The number of members at the start.
    members: int = 1
    #: The members' clocks, in turn; empty = all are right.
    clocks: tuple[MachineClock, ...] = ()
    settings: Settings
    handlers: tuple[Handling, ...]
    #: Whether apps have middlewares, which are slow and carry out the plans of handlers; and a function of
    #: `on_dead_letter`, which is slow and fails.
    around: bool = False
    #: Members are users' own loops around the engine; None = they are apps.
    loop: Loop | None = None
    topics: tuple[Topic, ...]
    records: tuple[Planned, ...] = ()
    faults: tuple[Fault, ...] = ()

    def handling(self, topic: str) -> Handling:
        """The handler of that topic."""
        return next(each for each in self.handlers if each.matches(topic))

    @property
    def in_order(self) -> bool:
        """Whether partitions change owners only by hand-overs, and brokers accept the commits of these."""
        return self.slips is None and self.broker not in LEASED and all(each.kind in _GENTLE for each in self.faults)

    @property
    def calm_s(self) -> float:
        """The time of the last record and the last fault's end."""
        last = [each.at_s for each in self.records] + [each.at_s + each.for_s for each in self.faults]
        return max(last, default=0.0)

    def to_json(self) -> str:
        """The world as text that a person can read and change. Fields of plans that have their default are left out."""
        return json.dumps({"version": VERSION, **_said(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> World:
        """Read a world. Raises ValueError: a world of another version; TypeError: an unknown field."""
        data = json.loads(text)
        if data.pop("version", None) != VERSION:
            raise ValueError(f"not a world of version {VERSION}: draw it anew, or change the text by hand")
        return _read(cls, data)


def _said(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        # Defaults of the engine's settings and policies may change, so a kept world has all of these.
        plan = type(value).__module__ == __name__
        return {
            each.name: _said(getattr(value, each.name))
            for each in fields(value)
            if not plan or each.default is MISSING or getattr(value, each.name) != each.default
        }
    return [_said(each) for each in value] if isinstance(value, tuple) else value


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(kind: type[W], data: dict[str, Any]) -> W:
    hints = _hints(kind)  # type: ignore[arg-type]  # mypy: a type that is bound to a variable counts as not hashable
    unknown = sorted(data.keys() - hints.keys())
    if unknown:
        raise TypeError(f"{kind.__name__} has no {', '.join(unknown)}")
    return kind(**{name: _value(hints[name], value) for name, value in data.items()})


def _value(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    if get_origin(hint) in (Union, UnionType):
        hint = next(each for each in get_args(hint) if each is not NoneType)
    if get_origin(hint) is tuple:
        return tuple(_value(get_args(hint)[0], each) for each in value)
    return _read(hint, value) if is_dataclass(hint) and isinstance(hint, type) else value
