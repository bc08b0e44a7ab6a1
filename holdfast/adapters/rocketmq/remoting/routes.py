"""Routes: the queues of topics and the addresses of brokers, as name servers report them.

A restarted name server knows topics and brokers only after the brokers have registered (30 s). Therefore a refresh that
does not find a topic changes nothing for ten minutes, and a broker that is in no route any more is remembered for as
long, to commit there. These minutes count only while name servers answer.
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
#: How long a broker without a route, and a topic that no name server knows, are remembered. Name servers forget a
#: broker that is down, and a restarted one forgets all, while records read from the broker must still be committed.
_REMEMBERED_S: Final = 600.0
#: The time between two answers of name servers counts up to this much as time in which they answered.
_LONGEST_S: Final = 60.0
_MOST_QUEUES: Final = 65536  # of a topic on one broker; bounds the allocation by a number from the network


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
    #: Broker's name -> its addresses by broker id; 0 is the master.
    brokers: Mapping[str, Mapping[int, str]]
    #: The name server's order configuration of the topic; rarely set.
    ordered: str | None = None

    def queues(self, *, read: bool = True) -> list[Partition]:
        """The queues that may be read, or those that may be written. The latter are fewer while queues are being
        removed."""
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
        #: Seconds for which name servers have answered so far, and the time of the last answer. The ages below are
        #: measured in these seconds.
        self._heard_s, self._heard_at = 0.0, clock.now()
        #: Broker -> (addresses by id in the newest route that has it, age of that route).
        self._brokers: dict[str, tuple[Mapping[int, str], float]] = {}
        #: Topic that no name server knows -> age of the first such answer since one knew it.
        self._missing: dict[str, float] = {}
        self._began: dict[str, float] = {}
        self._doubted_at = float("-inf")

    def route(self, topic: str, deadline: Deadline, *, fresh: bool) -> Route:
        """The known route, or requested now. Raises UnknownTopic, SourceError."""
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
        """Request the routes of these topics, all at once. Each topic has its own route or error. Waits."""
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
        """The newest known route; begins a refresh if it is old or in doubt. Never waits."""
        known = self._routes.get(topic)
        if known is None or self._stale(known[1]):
            self._refresh(topic)
        return None if known is None else known[0]

    def doubt(self) -> None:
        """Note that a broker's connection broke, so known routes may be wrong."""
        self._doubted_at = self._clock.now()

    def brokers(self) -> dict[str, Mapping[int, str]]:
        """The brokers in the newest routes: name -> addresses by id."""
        with self._lock:
            named = {name for route, _ in self._routes.values() for name in route.brokers}
            return {name: members for name, (members, _) in self._brokers.items() if name in named}

    def addresses(self, broker: str) -> Mapping[int, str]:
        """A broker's addresses by id, also if no route has the broker now; empty: it is not known."""
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
        # An error leaves the known route: a restarted name server knows no topic for up to 30 s.
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
        """Note that a name server has answered. Returns the age of that answer."""
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
