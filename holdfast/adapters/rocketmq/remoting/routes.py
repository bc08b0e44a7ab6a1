"""Where a topic's queues are: what a name server answers, and what is known of it.

A name server that was restarted knows a topic, or some of its brokers, only when they have told it (30 s): a refresh
that finds nothing changes nothing for ten minutes, and a broker that no route names is remembered for as long, to
commit there. Those minutes are counted only while name servers answer: an outage of theirs says nothing.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.adapters.rocketmq.remoting import codes
from holdfast.adapters.rocketmq.remoting.answers import NoAnswer, Shape, loose_json
from holdfast.adapters.rocketmq.remoting.in_flight import Request
from holdfast.errors import SourceError, SourceUnavailable, UnknownTopic
from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.adapters.rocketmq.remoting.answers import Answer
    from holdfast.adapters.rocketmq.remoting.network import Network
    from holdfast.timing import Clock, Deadline

_LEAST_BETWEEN_S: Final = 1.0  # two refreshes of a topic, however many connections break
#: A broker that no route names any more, and a topic that no name server knows, are remembered so long: name servers
#: forget a broker that is down, and all of them when they are restarted, while what was read from it is still to be
#: committed there.
_REMEMBERED_S: Final = 600.0
#: Between two answers of name servers no more than this counts as time in which they answered.
_LONGEST_S: Final = 60.0
_MOST_QUEUES: Final = 65536  # of a topic on one broker; a number from outside decides how much is allocated


class QueueData(NamedTuple):
    """A topic's queues on one broker."""

    broker: str
    read: int
    write: int
    perm: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A topic's queues and the brokers that have them."""

    topic: str
    queue_datas: tuple[QueueData, ...]
    #: Broker's name to its members' addresses, 0 being the master's.
    brokers: Mapping[str, Mapping[int, str]]
    #: A name server's own configuration of ordered topics; seldom there.
    ordered: str | None = None

    def queues(self, *, read: bool = True) -> list[Partition]:
        """The queues that may be read, or those that may be written: fewer while queues are being removed."""
        return sorted(
            Partition(self.topic, number, data.broker)
            for data in self.queue_datas
            if data.perm & (codes.PERM_READ if read else codes.PERM_WRITE)
            and (read or codes.MASTER in self.brokers.get(data.broker, {}))
            for number in range(data.read if read else data.write)
        )


def read_route(topic: str, answer: Answer) -> Route:
    """Read a name server's answer. Raises UnknownTopic, Malformed, SourceError."""
    answer.expect()
    shape = Shape(f"the route of {topic} by {answer.address}")
    whole = shape.record(loose_json(answer.body), "the body")
    datas: list[QueueData] = []
    for each in shape.array(whole.get("queueDatas"), "queueDatas"):
        data = shape.record(each, "queueDatas")
        counts = [shape.number(data.get(name), name) for name in ("readQueueNums", "writeQueueNums")]
        if not all(0 <= count <= _MOST_QUEUES for count in counts):
            raise shape.wrong("a number of queues")
        name = shape.text(data.get("brokerName"), "brokerName")
        datas.append(QueueData(name, counts[0], counts[1], shape.number(data.get("perm"), "perm")))
    brokers: dict[str, Mapping[int, str]] = {}
    for each in shape.array(whole.get("brokerDatas"), "brokerDatas"):
        data = shape.record(each, "brokerDatas")
        name = shape.text(data.get("brokerName"), "brokerName")
        brokers[name] = shape.addresses(data.get("brokerAddrs"), "brokerAddrs")
    ordered = whole.get("orderTopicConf")
    return Route(
        topic=topic,
        queue_datas=tuple(datas),
        brokers=brokers,
        ordered=None if ordered is None else shape.text(ordered, "orderTopicConf"),
    )


class Routes:
    """The known topics and brokers. Any thread."""

    def __init__(self, network: Network, max_age_s: float, clock: Clock) -> None:
        self._network, self._max_age_s, self._clock = network, max_age_s, clock
        self._lock = threading.Lock()
        self._routes: dict[str, tuple[Route, float]] = {}
        #: The time for which name servers have answered, and when the last answer came. Ages of what follows go by it.
        self._heard_s, self._heard_at = 0.0, clock.now()
        #: Brokers by the newest route that named them; with the age at which one did last.
        self._brokers: dict[str, tuple[Mapping[int, str], float]] = {}
        #: Topics that no name server knows; with the age at which that was said first since one knew them.
        self._missing: dict[str, float] = {}
        self._began: dict[str, float] = {}
        self._doubted_at = float("-inf")

    def route(self, topic: str, deadline: Deadline, *, fresh: bool) -> Route:
        """Known, or asked for now. Raises UnknownTopic, SourceError."""
        if not fresh and topic in self._routes and (known := self.known(topic)) is not None:
            return known
        try:
            found = self._network.ask_name_servers(_request(topic), deadline, lambda answer: read_route(topic, answer))
        except UnknownTopic:
            self._note_missing(topic)
            raise
        self._learn(found)
        return found

    def ask(self, topics: Sequence[str], deadline: Deadline) -> dict[str, Route | SourceError]:
        """Ask for the routes of all of these now, at once: each with its own answer, or why there is none. Waits."""
        answers: SimpleQueue[tuple[str, Route | SourceError]] = SimpleQueue()
        for topic in topics:
            read, note = partial(read_route, topic), partial(_put, answers, topic)
            try:
                self._network.begin_name_servers(_request(topic), read, note)
            except SourceError as error:
                note(error)
        found: dict[str, Route | SourceError] = {}
        with suppress(Empty):
            while len(found) < len(topics):
                topic, result = answers.get(timeout=deadline.left_s())
                found[topic] = result
                self._answered(topic, result)
        return {
            topic: found.get(topic) or NoAnswer(f"{_request(topic).what}: no answer of name servers in time")
            for topic in topics
        }

    def known(self, topic: str) -> Route | None:
        """The newest one known; begins a refresh where it is old or in doubt. Never waits."""
        known = self._routes.get(topic)
        if known is None or self._stale(known[1]):
            self._refresh(topic)
        return None if known is None else known[0]

    def doubt(self) -> None:
        """A broker's connection broke: what is known may be wrong."""
        self._doubted_at = self._clock.now()

    def brokers(self) -> dict[str, Mapping[int, str]]:
        """The brokers that the newest routes name: names to addresses by id."""
        with self._lock:
            named = {name for route, _ in self._routes.values() for name in route.brokers}
            return {name: members for name, (members, _) in self._brokers.items() if name in named}

    def addresses(self, broker: str) -> Mapping[int, str]:
        """A broker's members, also of one that no route names just now; empty = it is not known."""
        known = self._brokers.get(broker)
        return {} if known is None else known[0]

    def _stale(self, asked_at: float) -> bool:
        return asked_at <= self._doubted_at or self._clock.now() - asked_at >= self._max_age_s

    def _refresh(self, topic: str) -> None:
        now = self._clock.now()
        with self._lock:
            if now - self._began.get(topic, float("-inf")) < _LEAST_BETWEEN_S:
                return
            self._began[topic] = now
        with suppress(SourceUnavailable):
            self._network.begin_name_servers(
                _request(topic), partial(read_route, topic), partial(self._answered, topic)
            )

    def _answered(self, topic: str, result: Route | SourceError) -> None:
        # An error leaves what is known: a name server that was restarted knows no topic for up to 30 s.
        if isinstance(result, UnknownTopic):
            self._note_missing(topic)
        elif not isinstance(result, SourceError):
            self._learn(result)

    def _learn(self, route: Route) -> None:
        now = self._clock.now()
        with self._lock:
            heard = self._hear(now)
            self._routes[route.topic] = (route, now)
            self._missing.pop(route.topic, None)
            self._brokers.update({name: (members, heard) for name, members in route.brokers.items()})
            self._forget_old(heard)
            wanted = {address for members, _ in self._brokers.values() for address in members.values()}
        self._network.keep(wanted)

    def _note_missing(self, topic: str) -> None:
        with self._lock:
            heard = self._hear(self._clock.now())
            if topic in self._routes:
                self._missing.setdefault(topic, heard)
            self._forget_old(heard)

    # ---- under the lock
    def _hear(self, now: float) -> float:
        """A name server has answered; the age at which it did."""
        self._heard_s += min(now - self._heard_at, _LONGEST_S)
        self._heard_at = now
        return self._heard_s

    def _forget_old(self, heard: float) -> None:
        for topic in [topic for topic, since in self._missing.items() if heard - since > _REMEMBERED_S]:
            del self._missing[topic], self._routes[topic]
            self._began.pop(topic, None)
        for name in [name for name, (_, at) in self._brokers.items() if heard - at > _REMEMBERED_S]:
            del self._brokers[name]


def _put(answers: SimpleQueue[tuple[str, Route | SourceError]], topic: str, result: Route | SourceError) -> None:
    answers.put((topic, result))


def _request(topic: str) -> Request:
    return Request(codes.Request.GET_ROUTE_BY_TOPIC, f"asking for the route of {topic}", {"topic": topic})
