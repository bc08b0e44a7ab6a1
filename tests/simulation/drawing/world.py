"""World: everything that a simulated run is made of, as frozen data. A seed only makes it; what failed is kept as data.

Times are virtual seconds since the world began. Any part may be left out or made smaller and the rest keeps its
meaning: that is how a world shrinks.
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

#: Of the JSON. A world of another version is refused: what it meant then cannot be known.
VERSION = 1

#: Kafka's partitions; RocketMQ's queues, which a coordinator in the store of claims hands out; its messages one by one;
#: its queues by a client that shares them out without a word.
BrokerKind = Literal["kafka", "queues", "leased", "pushed"]
#: Of these the records are acknowledged one by one, in no order.
LEASED: tuple[BrokerKind, ...] = ("leased", "pushed")
Protocol = Literal["eager", "cooperative", "consumer"]
Kind = Literal["plain", "async", "batch", "async batch"]
StoreKind = Literal["specification", "scripts", "digests"]
OnSignal = Literal["close", "end", "go on"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineClock:
    """How a process' clock differs from the world's."""

    offset_s: float = 0.0
    rate: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic that is there from the start."""

    name: str
    partitions: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """One handler of every member: what `Holdfast.handler` is given."""

    name: str
    topics: tuple[str, ...]
    kind: Kind = "plain"
    #: Whether it names a business key.
    keyed: bool = False
    #: One scope for all handlers that say so; otherwise each group and topic has its own.
    shared_scope: bool = False
    attempts: int = 3
    wait_initial_s: float = 0.01
    wait_max_s: float = 0.05
    multiplier: float = 2.0
    jitter_s: float = 0.01
    #: Records whose plan is `hopeless` are not tried again: by `Retry.retry_on`, or by `Retry.give_up_on`.
    retry_on: bool = False
    give_up_on: bool = False
    dead_letter: bool = True
    letter_too_large: Literal["stop", "without_value"] = "stop"
    #: Of "kafka": after how long in a retry topic a record is tried again, one topic each; and what they are called.
    delays_s: tuple[float, ...] = ()
    topic_name: str = "{topic}.{group}.retry.{delay}"
    limit: DeadLetterLimit | None = None
    batch: BatchOf | None = None
    #: A batch of it fails with `BatchFailed`: those records that are to fail, and not the others.
    by_record: bool = False
    timeout_s: float | None = None

    def matches(self, topic: str) -> bool:
        """Whether it gets that topic's records."""
        return any(re.match(each, topic) if each.startswith("^") else each == topic for each in self.topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """How a user's own loop goes about it, as with `KafkaConsumer`."""

    done_when: DoneWhen = "next_poll"
    #: So many records a call; 1 = `poll`. And how long a call waits.
    at_most: int = 1
    wait_s: float = 0.1
    #: Of "commit": after so many records, and where nothing came.
    commit_after: int = 1
    #: It says what it has handled in on_revoke; and before it closes.
    says_at_revoke: bool = True
    says_at_end: bool = True
    #: What fails is to be returned again; else it is passed over as done.
    gives_back: bool = True
    #: Of "explicit": so many threads handle what the loop takes, and say so.
    threads: int = 0
    #: What it does when a signal handler raises in it: it closes and ends, ends at once, or goes on where it was.
    on_signal: OnSignal = "close"
    #: How often it seeks, of the times that it comes round: to where it stands, back, behind all that is done, ahead.
    seeks: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One record, and what its handler will do with it."""

    at_s: float = 0.0
    topic: str
    partition: int = 0
    #: The message's key: what is in order.
    key: str | None = None
    #: The business key: what is one piece of work. None where the handler asks for one: it is missing.
    unit: str | None = None
    takes_s: float = 0.0
    #: So many calls for it fail, whoever makes them; and so many hang for `hang_s` before that.
    fails: int = 0
    #: They fail with an error that its handler may know as one that no further call cures.
    hopeless: bool = False
    hangs: int = 0
    hang_s: float = 0.0
    #: Its handler stops when it is told to: a coroutine that is cancelled, a function that looks at `cancelled`.
    heeds: bool = True
    #: The client cannot read it.
    unreadable: bool = False
    #: No topic takes a letter of it, but one without its value.
    large: bool = False


#: What may go wrong, and what people do. `member` counts those that live at that time, modulo their number.
FaultKind = Literal[
    "crash",  #: a member's process is gone at once; another comes after `for_s`
    "stall",  #: a member's process stands still for `for_s`
    "term",  #: a member is asked to stop; `count` times, the second after `for_s`
    "join",  #: one more member comes
    "lose",  #: the broker takes away what a member has
    "silent",  #: the store hears and does not answer, for `for_s`
    "deaf",  #: the store does not hear, for `for_s`
    "slow",  #: calls of the store take up to `amount` longer each way, for `for_s`
    "failover",  #: the store loses what it acknowledges in the next `for_s`
    "empty",  #: the store loses everything
    "forbid",  #: the store refuses credentials, for `for_s`
    "lossy",  #: a part `amount` of the calls to the store is lost, unanswered or late, for `for_s`
    "refuse",  #: the next `count` commits of about half of the partitions are refused for now; by a broker that cannot
    #: refuse one, they arrive a second time, late; of leased messages, the next acknowledgements are not answered
    "letters",  #: dead letters are not taken, for `for_s`
    "grow",  #: a topic gets `count` more partitions
    "reset",  #: everybody leaves, somebody sets an offset to the part `amount` of its log, and they come back
    "foreign",  #: while members run another program commits an offset of a partition: one that is behind the group's by
    #: the part `amount` of what lies before it (`count` 1), or beyond by that part of what the log still has (2)
    "forget",  #: everybody leaves, the broker forgets the group's offsets, and they come back after `for_s`
    "compact",  #: about half of what is in a partition's log is compacted away
    "expire",  #: retention deletes the first part `amount` of a partition's log, whether or not it is handled
    "markers",  #: `count` transaction markers at the end of a partition
    "remake",  #: a topic is deleted, and made again after `for_s`
    "leaderless",  #: nobody leads a partition, for `for_s`
    "resend",  #: a producer sends the last `count` records of a partition once more
    "cut",  #: between a member and the broker requests (`count` 1), answers (2) or both (3) are lost, for `for_s`
    "late",  #: they come `amount` later each way, for `for_s`
    "twice",  #: a member's commits arrive once more, `amount` later, for `for_s`
    "interrupt",  #: Ctrl-C in a member's first thread, in the wait of that number (`place`) from then on; `count`
    #: times, the second after `for_s`
]

#: These take no partition away from who has it, and leave the broker's answers as they are, but for their time. A slow
#: store is none of them: who is a member of a group there may not be heard in time.
_GENTLE: frozenset[FaultKind] = frozenset(
    {"term", "join", "letters", "grow", "compact", "expire", "markers", "resend", "late", "twice"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that happens."""

    at_s: float
    kind: FaultKind
    member: int = 0
    for_s: float = 0.0
    count: int = 1
    amount: float = 0.0
    #: Which partition, of all, modulo their number.
    place: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One simulated run."""

    #: Who goes next, of those who may. Nothing else is drawn by it.
    seed: int = 0
    #: Wake-ups are late by chance, as systems are.
    jitter: bool = True
    #: How often somebody else goes on where a clock is read.
    yield_odds: float = 0.01
    broker: BrokerKind = "kafka"
    #: Of "queues": what no handler has a business key for is claimed by the message's own name too.
    by_message: bool = False
    #: Of "leased": how long a message is hidden from others.
    message_lease_s: float = 2.0
    #: Of "kafka".
    protocol: Protocol = "cooperative"
    #: Of "kafka": where the group begins in a partition in which it has no offset, and had none.
    begins: Literal["earliest", "latest"] = "earliest"
    #: Members have names that outlive a restart.
    static: bool = False
    #: Their clients leave records out; None: they do not.
    slips: SlipKind | None = None
    session_timeout_s: float = 1.0
    max_poll_interval_s: float = 300.0
    #: How long a member waits for the broker's answer.
    request_timeout_s: float = 5.0
    #: Its specification, or the shipped Lua scripts (which need `lupa`), with plain keys or digests of keys.
    store: StoreKind = "specification"
    #: Of the store's sessions; and how long a process waits for one of its replies.
    lease_s: float = 1.5
    store_timeout_s: float = 0.3
    #: How many members there are at the start.
    members: int = 1
    #: The first member has the first one, and so on, in turn; none: all clocks are right.
    clocks: tuple[MachineClock, ...] = ()
    settings: Settings
    handlers: tuple[Handling, ...]
    #: Apps have middlewares, which are slow and do what handlers do elsewhere (fail as planned, say); and a function of
    #: `on_dead_letter`, which is slow and fails.
    around: bool = False
    #: Members are loops of the user's own, around the engine; None: they are apps.
    loop: Loop | None = None
    topics: tuple[Topic, ...]
    records: tuple[Planned, ...] = ()
    faults: tuple[Fault, ...] = ()

    def handling(self, topic: str) -> Handling:
        """The handler of that topic."""
        return next(each for each in self.handlers if each.matches(topic))

    @property
    def in_order(self) -> bool:
        """Whether partitions only change hands by hand-overs, and brokers take what is committed in these."""
        return self.slips is None and self.broker not in LEASED and all(each.kind in _GENTLE for each in self.faults)

    @property
    def calm_s(self) -> float:
        """When nothing happens any more but what members do by themselves."""
        last = [each.at_s for each in self.records] + [each.at_s + each.for_s for each in self.faults]
        return max(last, default=0.0)

    def to_json(self) -> str:
        """The world as text that a person can read and change. What has its default in a plan is left out."""
        return json.dumps({"version": VERSION, **_said(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> World:
        """Raises ValueError: not a world of this version; TypeError: a field that there is none of."""
        data = json.loads(text)
        if data.pop("version", None) != VERSION:
            raise ValueError(f"not a world of version {VERSION}: draw it anew, or change the text by hand")
        return _read(cls, data)


def _said(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        # Settings and policies are the engine's, and their defaults may change: a world that is kept says them all.
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
