"""Servers by address: connections, signed requests, typed answers; name servers in turn, or many brokers at once."""

from __future__ import annotations

import base64
import hmac
import random
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from holdfast.adapters.rocketmq.remoting.answers import Answer, NoAnswer, NotTrusted
from holdfast.adapters.rocketmq.remoting.channel import split_address
from holdfast.adapters.rocketmq.remoting.connection import Connection
from holdfast.errors import SettingError, SourceError, SourceFatal, SourceUnavailable, UnknownTopic
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import TypeVar

    from holdfast.adapters.rocketmq.remoting.frame import Command
    from holdfast.adapters.rocketmq.remoting.in_flight import Request
    from holdfast.timing import Clock

    T = TypeVar("T")


def credentials_of(access_key: str | None, secret_key: str | None) -> Credentials | None:
    """Credentials of two keys; None if they are not given. Raises SettingError: a key is empty."""
    if access_key is None or secret_key is None:
        return None
    return Credentials(access_key=access_key, secret_key=secret_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The credentials of a client. Neither key is ever shown.

    Raises:
        SettingError: a key is empty.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key"):
            if not getattr(self, name):
                raise SettingError(name, "", "both keys are needed, as the broker knows them; without ACL give none")

    def __repr__(self) -> str:
        return "Credentials(***)"

    def sign(self, fields: Mapping[str, str], body: bytes) -> dict[str, str]:
        """The fields with the signature among them. Any thread."""
        signed = {**fields, "AccessKey": self.access_key}
        if self.security_token is not None:
            signed["SecurityToken"] = self.security_token
        content = "".join(signed[name] for name in sorted(signed) if name != "Signature").encode() + body
        digest = hmac.digest(self.secret_key.encode(), content, "sha1")
        signed["Signature"] = base64.b64encode(digest).decode()
        return signed


_UNUSED_S: Final = 60.0
_REFRESH_S: Final = 3.0  # the timeout for one name server, in an asynchronous refresh


class Network:
    """The connections to servers by address, signed requests, typed answers. Any thread.

    Args:
        namesrv: "host:port", several separated by ";".
    """

    def __init__(
        self,
        namesrv: str,
        *,
        credentials: Credentials | None,
        tls: ssl.SSLContext | None,
        connect_timeout_s: float,
        on_request: Callable[[Command, str], bytes | None],
        on_broken: Callable[[str], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.name_servers = [each.strip() for each in namesrv.split(";") if each.strip()]
        if not self.name_servers:
            raise SettingError("namesrv", namesrv, "host:port is wanted, several parted by ';'")
        for each in self.name_servers:
            split_address(each)
        self._credentials, self._tls, self._connect_timeout_s = credentials, tls, connect_timeout_s
        self._on_request, self._on_broken = on_request, on_broken
        self._clock = clock
        self._lock = threading.Lock()
        self._connections: dict[str, Connection] = {}
        self._closed = False
        self._first = random.randrange(len(self.name_servers))  # spreads clients over the name servers

    def begin(
        self,
        address: str,
        request: Request,
        timeout_s: float,
        read: Callable[[Answer], T],
        on_answer: Callable[[T | SourceError], None],
    ) -> None:
        """Ask without waiting; `on_answer` gets the result of `read`, or the error.

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
        """Ask and wait; the answer may have any code. Raises as `Connection.ask`."""
        return _answer(request, address, self._connection(address).ask(self._signed(request), deadline))

    def ask_name_servers(self, request: Request, deadline: Deadline, read: Callable[[Answer], T]) -> T:
        """Ask name servers in turn, and return the first successful answer.

        Raises:
            UnknownTopic: none succeeded, and at least one does not know the topic.
            SourceError: none succeeded, and at least one refused.
            SourceUnavailable: none answered; has the reason for each. NotTrusted, if it is the reason for all.
        """
        refused: SourceError | None = None
        failed: list[SourceUnavailable] = []
        order = self._order()
        for asked, address in enumerate(order):
            share = Deadline(deadline.left_s() / (len(order) - asked), self._clock)  # leaves time for the others
            try:
                found = read(self.ask(address, request, share))
            except SourceFatal:
                raise
            except SourceUnavailable as error:
                failed.append(error)
            except SourceError as error:  # a restarted name server does not know topics until brokers register
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
        """Ask name servers without waiting; the result is as of `ask_name_servers`. Raises SourceFatal."""
        order = self._order()
        unknown: list[UnknownTopic] = []  # a restarted name server does not know topics until brokers register

        def next_one(last: T | SourceError | None = None) -> None:
            if isinstance(last, UnknownTopic):
                unknown.append(last)
            if last is not None and (not isinstance(last, SourceError) or isinstance(last, SourceFatal) or not order):
                on_answer(unknown[0] if unknown and isinstance(last, SourceUnavailable) else last)
                return
            try:
                self.begin(order.pop(0), request, _REFRESH_S, read, next_one)
            except SourceError as error:
                if last is None:
                    raise
                on_answer(error)

        next_one()

    def broken(self, address: str) -> bool:
        """Whether the last connection to this server broke or failed."""
        found = self._connections.get(address)
        return found is not None and found.broken

    def keep(self, addresses: set[str]) -> None:
        """End the connections to all other servers that were not used for 60 s."""
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
                        on_request=self._on_request,
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


def ask_everyone(
    network: Network, addresses: Collection[str], request: Request, deadline: Deadline
) -> dict[str, SourceError]:
    """Send a request to all addresses, and wait for all answers. Returns address -> error, for those that failed."""
    replies = ask_each(network, [(address, request) for address in addresses], deadline, _read)
    return {address: reply for address, reply in zip(addresses, replies, strict=True) if reply is not None}


def ask_each(
    network: Network, asked: Sequence[tuple[str, Request]], deadline: Deadline, read: Callable[[Answer], T]
) -> list[T | SourceError]:
    """Send (address, request) pairs all at once, and wait for all answers. Returns the result of `read`, or the error,
    for each, in the order of `asked`."""
    answers: SimpleQueue[tuple[int, T | SourceError]] = SimpleQueue()
    found: dict[int, T | SourceError] = {}
    for number, (address, request) in enumerate(asked):
        try:
            network.begin(address, request, deadline.left_s(), read, _note(answers, number))
        except SourceError as error:
            found[number] = error
    with suppress(Empty):
        while len(found) < len(asked):
            number, reply = answers.get(timeout=deadline.left_s())
            found[number] = reply
    return [
        found.get(number, NoAnswer(f"{request.what}: no answer of {address} in time"))
        for number, (address, request) in enumerate(asked)
    ]


def _read(answer: Answer) -> None:
    answer.expect()


def _note(answers: SimpleQueue[tuple[int, T | SourceError]], number: int) -> Callable[[T | SourceError], None]:
    return lambda reply: answers.put((number, reply))
