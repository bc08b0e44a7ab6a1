"""RemotingClient: the requests of a consumer to RocketMQ's name servers and brokers."""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from holdfast.adapters.rocketmq.remoting import codes, membership, queues
from holdfast.adapters.rocketmq.remoting.answers import CommitIgnored
from holdfast.adapters.rocketmq.remoting.channel import split_address
from holdfast.adapters.rocketmq.remoting.in_flight import Request
from holdfast.adapters.rocketmq.remoting.network import Network, ask_everyone
from holdfast.adapters.rocketmq.remoting.routes import Routes
from holdfast.errors import NotAuthorised, SourceError, SourceUnavailable
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeVar

    from holdfast.adapters.rocketmq.remoting.answers import Answer
    from holdfast.adapters.rocketmq.remoting.frame import Command
    from holdfast.adapters.rocketmq.remoting.membership import Consumer
    from holdfast.adapters.rocketmq.remoting.network import Credentials
    from holdfast.adapters.rocketmq.remoting.queues import PullAnswer, PullRequest
    from holdfast.adapters.rocketmq.remoting.routes import Route
    from holdfast.records import Partition
    from holdfast.timing import Clock, Deadline

    T = TypeVar("T")


class Notice(NamedTuple):
    """A broker's request to its client; `code` is one of `codes.FromBroker`."""

    code: int
    fields: Mapping[str, str]
    body: bytes
    address: str


class RemotingClient:
    """A client of one cluster. Connections are opened with the first request. Any thread.

    Methods with a deadline wait until then at most, and raise SourceError; do not call them in a callback. Methods
    named `begin_*` never wait: `on_answer` is called once, on a connection's thread, with the result or a SourceError.
    If the request cannot be queued they raise SourceUnavailable or SourceFatal, and `on_answer` is not called.

    Args:
        namesrv: the name servers, "host:port;host:port".
        client_id: this client's name in groups; None: one is made.
        credentials: for brokers with access control: every request is signed.
        tls: for brokers and name servers with TLS.
        on_notice: called with brokers' requests, on a connection's thread; returns the body of the answer, or None.
        connect_timeout_s: seconds, for one server.
        route_max_age_s: a route that is older is refreshed when it is used.

    Raises:
        SettingError: `namesrv` has no address, or one that cannot be read.
    """

    def __init__(
        self,
        namesrv: str,
        *,
        client_id: str | None = None,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        on_notice: Callable[[Notice], bytes | None] | None = None,
        connect_timeout_s: float = 3.0,
        route_max_age_s: float = 30.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.namesrv = namesrv
        self.client_id = client_id or f"{socket.gethostname()}@{os.getpid()}#{secrets.token_hex(4)}"
        self._on_notice = on_notice
        #: Called with the address when a connection to a broker broke or failed. On the connection's thread.
        self.on_broken: Callable[[str], None] = lambda _: None
        self.network = Network(
            namesrv,
            credentials=credentials,
            tls=tls,
            connect_timeout_s=connect_timeout_s,
            on_request=self._requested,
            on_broken=self._broken,
            clock=clock,
        )
        self.routes = Routes(self.network, route_max_age_s, clock)
        self._suggested: dict[Partition, int] = {}
        #: Queues with a reset pending at the master: the next pull must go there, whatever a slave suggests.
        self._waited_for: set[Partition] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RemotingClient({self.namesrv!r}, client_id={self.client_id!r})"

    def close(self, timeout_s: float = 1.0) -> None:
        """End all connections and their threads. Requests without an answer get SourceFatal. Idempotent."""
        self.network.close(timeout_s)

    # -- routes

    def route(self, topic: str, deadline: Deadline, *, fresh: bool = False) -> Route:
        """A topic's queues and brokers. The known route, as `known_route`; with `fresh`, or if none is known, by a
        request now.

        Raises:
            UnknownTopic: no name server knows the topic.
            SourceUnavailable: no name server answers.
        """
        return self.routes.route(topic, deadline, fresh=fresh)

    def routes_of(self, topics: Sequence[str], deadline: Deadline) -> dict[str, Route | SourceError]:
        """Request the routes of many topics, all at once. Each topic has its own result or error."""
        return self.routes.ask(topics, deadline)

    def known_route(self, topic: str) -> Route | None:
        """The newest known route; None: none yet. Begins a refresh if it is old or a connection broke. Never waits.

        If a refresh does not find the topic, the known route stays: a restarted name server knows topics and brokers
        only after the brokers have registered (within 30 s).
        """
        return self.routes.known(topic)

    def brokers_at(self, address: str) -> list[str]:
        """The brokers that have a master or slave at this address, as far as known."""
        known = self.routes.brokers()
        return [name for name, members in known.items() if address in members.values()]

    def servers(self) -> frozenset[str]:
        """The addresses that identify the cluster, "host:port" of its name servers and brokers, as far as known.

        Clusters that were set up from the same files have the same names of brokers, topics and groups, and no server
        has a lasting id. Name servers are resolved to IP addresses: "rmqnamesrv:9876" may be another server in another
        network. May wait for DNS, but not for a server.
        """
        found = {address for members in self.routes.brokers().values() for address in members.values()}
        for name_server in self.network.name_servers:
            host, port = split_address(name_server)
            with suppress(OSError):  # left out until it can be resolved
                for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                    found.add(f"{address[0]!s}:{port}")
        return frozenset(found)

    def broker_names(self) -> list[str]:
        """The brokers that the newest routes name."""
        return sorted(self.routes.brokers())

    # -- offsets: only from the master

    def query_offset(self, queue: Partition, group: str, deadline: Deadline) -> int | None:
        """The group's committed offset, which is the next to read. None: the broker says that there is none."""
        return queues.read_query(self.ask_master(queue, queues.query(queue, group), deadline))

    def begin_query_offset(
        self,
        queue: Partition,
        group: str,
        on_answer: Callable[[int | SourceError | None], None],
        *,
        timeout_s: float = 5.0,
    ) -> None:
        """Ask for the group's offset without waiting."""
        self.begin_master(queue, queues.query(queue, group), timeout_s, queues.read_query, on_answer)

    def commit_offset(self, queue: Partition, group: str, offset: int, deadline: Deadline) -> None:
        """Set the group's offset. The broker accepts any value from any client.

        Raises:
            CommitIgnored: a reset of the queue is pending.
        """
        queues.read_commit(self.ask_master(queue, queues.commit(queue, group, offset), deadline))

    def begin_commit(
        self,
        queue: Partition,
        group: str,
        offset: int,
        on_answer: Callable[[SourceError | None], None],
        *,
        timeout_s: float = 5.0,
    ) -> None:
        """Commit without waiting; `on_answer` gets None if it is done."""
        request = queues.commit(queue, group, offset)

        def answered(error: SourceError | None) -> None:
            if isinstance(error, CommitIgnored):  # slaves do not know the reset, and may suggest themselves for hours
                self._waited_for.add(queue)
            on_answer(error)

        self.begin_master(queue, request, timeout_s, queues.read_commit, answered)

    def max_offset(self, queue: Partition, deadline: Deadline) -> int:
        """The end of the log: the next offset that is written. 0 for a queue that the broker does not know."""
        return queues.read_offset(self.ask_master(queue, queues.longest(queue), deadline))

    def begin_max_offset(
        self, queue: Partition, on_answer: Callable[[int | SourceError], None], *, timeout_s: float = 5.0
    ) -> None:
        """Ask for the end of the log without waiting."""
        self.begin_master(queue, queues.longest(queue), timeout_s, queues.read_offset, on_answer)

    def min_offset(self, queue: Partition, deadline: Deadline) -> int:
        """The beginning of the log."""
        return queues.read_offset(self.ask_master(queue, queues.first(queue), deadline))

    def offset_at(self, queue: Partition, timestamp_ms: int, deadline: Deadline) -> int:
        """The first offset whose message was stored at this time or later; the end of the log if there is none."""
        return queues.read_offset(self.ask_master(queue, queues.at_time(queue, timestamp_ms), deadline))

    # -- membership

    def consumer_ids(self, broker: str, group: str, deadline: Deadline) -> list[str]:
        """The client ids of a group's members, as this broker lists them. Without a master a slave is asked: it gets
        heartbeats too."""
        known = self.routes.addresses(broker)
        asked = known[min(known)] if known else self.master(broker)
        found = membership.read_members(self.network.ask(asked, membership.members(group), deadline))
        if found is not None:
            return found
        # No members, or a failure: only the tools' request tells which. Without permission for it, assume no members.
        try:
            seen = membership.read_connections(self.network.ask(asked, membership.connections(group), deadline))
        except NotAuthorised:
            return []
        return [] if seen is None else [each.client_id for each in seen.members]

    def heartbeat(
        self, consumers: Sequence[Consumer], deadline: Deadline, *, producers: Sequence[str] = ()
    ) -> dict[str, SourceError]:
        """Send heartbeats to all masters and slaves of the newest routes, all at once.

        Returns:
            Address -> error, for those that failed.
        """
        return self._ask_everyone(membership.heartbeat(self.client_id, consumers, producers), deadline)

    def unregister(self, group: str, deadline: Deadline, *, producer: bool = False) -> dict[str, SourceError]:
        """Tell all brokers of the newest routes that this client leaves the group. Returns as `heartbeat`."""
        return self._ask_everyone(membership.unregister(self.client_id, group, producer=producer), deadline)

    def lock(self, broker: str, group: str, queues: Sequence[Partition], deadline: Deadline) -> list[Partition]:
        """Take the locks of ordered consumers on this broker's queues. Returns the queues that are locked for this
        client now."""
        request = membership.lock(self.client_id, group, queues)
        return membership.read_locked(self.network.ask(self.master(broker), request, deadline))

    def unlock(self, broker: str, group: str, queues: Sequence[Partition], deadline: Deadline) -> None:
        """Release locks. Another client's locks stay, without an error."""
        request = membership.lock(self.client_id, group, queues, undo=True)
        self.network.ask(self.master(broker), request, deadline).expect()

    # -- pull

    def begin_pull(self, request: PullRequest, on_answer: Callable[[PullAnswer | SourceError], None]) -> None:
        """Pull without waiting: from the master, from the slave that it suggested, or from a slave while there is no
        master."""
        self.routes.known(request.queue.topic)  # begins a refresh if one is due
        broker_id, address = self._reader(request.queue)

        def answered(result: PullAnswer | SourceError) -> None:
            if not isinstance(result, SourceError):
                self._suggested[request.queue] = result.suggested_broker_id
                if broker_id == codes.MASTER:
                    self._waited_for.discard(request.queue)
            on_answer(result)

        asked = queues.pull(request, of_master=broker_id == codes.MASTER)
        read = partial(queues.read_pull, asked=request.offset)
        self.network.begin(address, asked, request.timeout_s, read, answered)

    def pull(self, request: PullRequest, deadline: Deadline) -> PullAnswer:
        """Pull, and wait for the answer. The deadline must be longer than `request.suspend_s`."""
        self._addresses(request.queue.broker, request.queue.topic, deadline)
        broker_id, address = self._reader(request.queue)
        asked = queues.pull(request, of_master=broker_id == codes.MASTER)
        answer = queues.read_pull(self.network.ask(address, asked, deadline), request.offset)
        self._suggested[request.queue] = answer.suggested_broker_id
        return answer

    def forget(self, queues: Iterable[Partition]) -> None:
        """Forget the state of queues that are gone for good."""
        for queue in queues:
            self._suggested.pop(queue, None)
            self._waited_for.discard(queue)

    # -- requests without a method of their own

    def ask(self, broker: str, code: int, fields: Mapping[str, Any], deadline: Deadline, body: bytes = b"") -> Answer:
        """Send any request to a master. Fields that are None are left out. Raises for any code but 0."""
        request = Request(code, f"request {code}", as_fields(fields), body)
        return self.network.ask(self.master(broker), request, deadline).expect()

    def ask_name_server(self, code: int, fields: Mapping[str, Any], deadline: Deadline, body: bytes = b"") -> Answer:
        """Send any request to a name server. Raises for any code but 0."""
        request = Request(code, f"request {code}", as_fields(fields), body)
        return self.network.ask_name_servers(request, deadline, lambda answer: answer.expect())

    def master(self, broker: str) -> str:
        """The master's address. Raises SourceUnavailable: none is known."""
        found = self.routes.addresses(broker)
        if codes.MASTER not in found:
            why = "has no master now" if found else "is not known: no name server names it for a topic asked for"
            self.routes.doubt()
            raise SourceUnavailable(f"broker {broker!r} {why}")
        return found[codes.MASTER]

    # -- for the package's own modules

    def ask_master(self, queue: Partition, request: Request, deadline: Deadline) -> Answer:
        """Ask the queue's master; the answer may have any code. Requests the route if the master is not known."""
        self._addresses(queue.broker, queue.topic, deadline)
        return self.network.ask(self.master(queue.broker), request, deadline)

    def begin_master(
        self,
        queue: Partition,
        request: Request,
        timeout_s: float,
        read: Callable[[Answer], T],
        on_answer: Callable[[T | SourceError], None],
    ) -> None:
        """Ask the master without waiting; the broker must be known. `on_answer` gets the result of `read`."""
        self.routes.known(queue.topic)  # begins a refresh if one is due
        self.network.begin(self.master(queue.broker), request, timeout_s, read, on_answer)

    # -- inside

    def _addresses(self, broker: str, topic: str, deadline: Deadline) -> None:
        """Make sure that the master's address is known; may request the route."""
        if codes.MASTER not in self.routes.addresses(broker):
            self.routes.route(topic, deadline, fresh=True)

    def _reader(self, queue: Partition) -> tuple[int, str]:
        found = self.routes.addresses(queue.broker)
        if not found:
            self.routes.doubt()
            raise SourceUnavailable(f"broker {queue.broker!r} is not known: no name server names it for {queue.topic}")
        wanted = codes.MASTER if queue in self._waited_for else self._suggested.get(queue, codes.MASTER)
        order = sorted(found, key=lambda each: (self.network.broken(found[each]), each != wanted, each))
        return order[0], found[order[0]]

    def _ask_everyone(self, request: Request, deadline: Deadline) -> dict[str, SourceError]:
        addresses = {each for members in self.routes.brokers().values() for each in members.values()}
        return ask_everyone(self.network, addresses, request, deadline)

    def _broken(self, address: str) -> None:
        self.routes.doubt()
        if address not in self.network.name_servers:
            self.on_broken(address)

    def _requested(self, command: Command, address: str) -> bytes | None:
        if self._on_notice is None:
            return None
        return self._on_notice(Notice(command.code, command.fields, command.body, address))


def as_fields(values: Mapping[str, Any]) -> dict[str, str]:
    """Convert values to text, as the protocol has them. None is left out."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
        if value is not None
    }
