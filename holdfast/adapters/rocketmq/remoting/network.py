"""Servers by address: connections, signed requests, typed answers; name servers in turn."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Final

from holdfast.adapters.rocketmq.remoting.answers import Answer
from holdfast.adapters.rocketmq.remoting.connecting import split_address
from holdfast.adapters.rocketmq.remoting.connection import Connection
from holdfast.adapters.rocketmq.remoting.errors import NotTrusted
from holdfast.errors import SettingError, SourceError, SourceFatal, SourceUnavailable, UnknownTopic
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from typing import TypeVar

    from holdfast.adapters.rocketmq.remoting.acl import Credentials
    from holdfast.adapters.rocketmq.remoting.frame import Command
    from holdfast.adapters.rocketmq.remoting.in_flight import Request
    from holdfast.timing import Clock

    T = TypeVar("T")

_UNUSED_S: Final = 60.0
_REFRESH_S: Final = 3.0  # of one name server, in a refresh that nobody waits for


class Network:
    """The connections to servers by address, signed requests, typed answers. Any thread.

    Args:
        namesrv: "host:port", several parted by ";".
    """

    def __init__(
        self,
        namesrv: str,
        *,
        credentials: Credentials | None,
        tls: ssl.SSLContext | None,
        connect_timeout_s: float,
        on_told: Callable[[Command, str], bytes | None],
        on_broken: Callable[[str], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.name_servers = [each.strip() for each in namesrv.split(";") if each.strip()]
        if not self.name_servers:
            raise SettingError("namesrv", namesrv, "host:port is wanted, several parted by ';'")
        for each in self.name_servers:
            split_address(each)
        self._credentials, self._tls, self._connect_timeout_s = credentials, tls, connect_timeout_s
        self._on_told, self._on_broken = on_told, on_broken
        self._clock = clock
        self._lock = threading.Lock()
        self._connections: dict[str, Connection] = {}
        self._closed = False
        self._first = random.randrange(len(self.name_servers))  # so that not all clients ask the same one

    def begin(
        self,
        address: str,
        request: Request,
        timeout_s: float,
        read: Callable[[Answer], T],
        on_answer: Callable[[T | SourceError], None],
    ) -> None:
        """Ask without waiting; `on_answer` gets what `read` makes of the answer, or the error.

        Raises as `Connection.begin`.
        """

        def answered(result: Command | SourceError) -> None:
            if isinstance(result, SourceError):
                on_answer(result)
                return
            try:
                value = read(_answer(request, address, result))
            except SourceError as error:
                on_answer(error)
            else:
                on_answer(value)

        self._connection(address).begin(self._signed(request), timeout_s, answered)

    def ask(self, address: str, request: Request, deadline: Deadline) -> Answer:
        """Ask and wait; an answer of any code. Raises as `Connection.ask`."""
        return _answer(request, address, self._connection(address).ask(self._signed(request), deadline))

    def ask_name_servers(self, request: Request, deadline: Deadline, read: Callable[[Answer], T]) -> T:
        """What the first one tells that knows it.

        Raises:
            UnknownTopic: none knows the topic, and one at least has said so.
            SourceError: one at least refused, and none did better.
            SourceUnavailable: none answered; says why, for each. NotTrusted, where that is why for all of them.
        """
        refused: SourceError | None = None
        failed: list[SourceUnavailable] = []
        order = self._order()
        for asked, address in enumerate(order):
            share = Deadline(deadline.left_s() / (len(order) - asked), self._clock)  # a silent one does not use up all
            try:
                found = read(self.ask(address, request, share))
            except SourceFatal:
                raise
            except SourceUnavailable as error:
                failed.append(error)
            except SourceError as error:  # one that was restarted knows topics only when the brokers have told it
                refused = error if refused is None or isinstance(error, UnknownTopic) else refused
            else:
                self._first = self.name_servers.index(address)
                return found
        if refused is not None:
            raise refused
        kind = NotTrusted if all(isinstance(error, NotTrusted) for error in failed) else SourceUnavailable
        raise kind("no name server answers: " + "; ".join(map(str, failed)))

    def begin_name_servers(
        self, request: Request, read: Callable[[Answer], T], on_answer: Callable[[T | SourceError], None]
    ) -> None:
        """The same without waiting. Raises SourceFatal."""
        order = self._order()

        def next_one(last: T | SourceError | None = None) -> None:
            if last is not None and (not isinstance(last, SourceError) or isinstance(last, SourceFatal) or not order):
                on_answer(last)
                return
            try:
                self.begin(order.pop(0), request, _REFRESH_S, read, next_one)
            except SourceError as error:
                if last is None:
                    raise
                on_answer(error)

        next_one()

    def broken(self, address: str) -> bool:
        """Whether the last that is known of this server is a broken connection."""
        found = self._connections.get(address)
        return found is not None and found.broken

    def keep(self, addresses: set[str]) -> None:
        """End the connections to all others, once nobody has used them for a while."""
        wanted = addresses.union(self.name_servers)
        with self._lock:
            others = [each for address, each in self._connections.items() if address not in wanted]
            gone = [each for each in others if each.unused_s > _UNUSED_S]
            for each in gone:
                del self._connections[each.address]
        for each in gone:
            each.close(0.0)

    def close(self, timeout_s: float) -> None:
        """End all connections. Idempotent."""
        with self._lock:
            self._closed = True
            connections = list(self._connections.values())
        deadline = Deadline(timeout_s, self._clock)
        for each in connections:
            each.close(0.0)
        for each in connections:
            each.close(deadline.left_s())

    def _order(self) -> list[str]:
        first = self._first
        return self.name_servers[first:] + self.name_servers[:first]

    def _connection(self, address: str) -> Connection:
        found = self._connections.get(address)
        if found is None:
            with self._lock:
                if self._closed:
                    raise SourceFatal("the client is closed")
                found = self._connections.get(address)
                if found is None:
                    found = self._connections[address] = Connection(
                        address,
                        tls=self._tls,
                        connect_timeout_s=self._connect_timeout_s,
                        on_told=self._on_told,
                        on_broken=self._on_broken,
                        clock=self._clock,
                    )
        return found

    def _signed(self, request: Request) -> Request:
        if self._credentials is None:
            return request
        return request._replace(fields=self._credentials.sign(request.fields, request.body))


def _answer(request: Request, address: str, command: Command) -> Answer:
    return Answer(request.what, address, command.code, command.remark, command.fields, command.body)
