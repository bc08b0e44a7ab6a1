"""Client: redis-py's client, made safe against interrupted calls: no call reads the reply of another.

A signal's handler may raise between any two lines of a main thread: a job's time limit, KeyboardInterrupt. If that
happens between a request and its reply, redis-py gives the connection back to its pool as it is. The next call on it,
about another key, would read that reply as its own. Therefore commands go through an `Exchange`, which knows which
replies are still to come.
"""

from __future__ import annotations

import sys
from itertools import groupby
from typing import TYPE_CHECKING, Any, Self

import redis
from redis import exceptions
from redis.client import Pipeline

from holdfast.dedup.redis_errors import interruption
from holdfast.dedup.redis_server import agree_on_layout, inspect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.dedup.redis_layout import Layout
    from holdfast.dedup.redis_server import Server

    Command = tuple[Any, ...]
    #: A key of a server -> the commands to send after those for this server.
    Confirm = Callable[[bytes], Sequence[Command]]

#: The version of redis-py from which on `get_connection` of its pools needs no name of a command.
_TAKES_NO_COMMAND = (5, 3)
_TAKEN_FOR: tuple[str, ...] = (
    () if tuple(int(part) for part in redis.__version__.split(".")[:2]) >= _TAKES_NO_COMMAND else ("EVALSHA",)
)
_SCRIPTS = frozenset({"EVAL", "EVALSHA"})
_KEYLESS = frozenset({"TIME", "WAIT"})


def key_of(command: Command) -> bytes:
    """The first key of a command; empty = it has none."""
    name = command[0].decode() if isinstance(command[0], bytes) else str(command[0])
    if name in _KEYLESS or len(command) < 2:
        return b""
    key = command[3] if name in _SCRIPTS else command[1]
    return key if isinstance(key, bytes) else str(key).encode()


def pack(name: str | bytes, *args: Any) -> bytes:  # noqa: ANN401 - as redis-py's
    """One command as bytes, in a fifth of redis-py's time where arguments are many. Its name, as text, may be several
    words.

    redis-py's own function copies its buffer with each argument, and hands it to the socket 6 KB at a time; a claim of
    500 keys has more than 500 arguments and 30 KB. Neighbouring arguments often have the same length: a run of these is
    one join.

    Raises:
        DataError: an argument is neither text, bytes nor a number.
    """
    words = name.encode().split() if isinstance(name, str) else [name]
    octets = [each if isinstance(each, bytes) else _octets(each) for each in (*words, *args)]
    pieces = [b"*%d" % len(octets)]
    for length, run in groupby(octets, len):
        begin = b"\r\n$%d\r\n" % length
        pieces.append(begin + begin.join(run))
    pieces.append(b"\r\n")
    return b"".join(pieces)


def _octets(value: object) -> bytes:
    """An argument's bytes, as redis-py makes them."""
    if type(value) is int:  # most of a mark's
        return b"%d" % value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise exceptions.DataError(f"an argument of type {type(value).__name__}: give text, bytes or a number")
    return repr(value).encode()


class Exchange:
    """Commands that are sent together over one connection, and their replies. One thread.

    The connection goes back to its pool without outstanding replies, or closed.
    """

    def __init__(self, pool: redis.ConnectionPool) -> None:
        self._pool = pool
        self._connection: Any = None
        self._due = 0

    def write(self, commands: Sequence[Command]) -> None:
        """Send them. Raises what redis-py does."""
        packed = b"".join([pack(*command) for command in commands])
        self._connection = self._pool.get_connection(*_TAKEN_FOR)
        self._due = len(commands)  # before the send: after a partial one the connection must not be used again
        self._connection.send_packed_command([packed])

    def read(self) -> list[Any]:
        """Read all replies; the error of a command is its reply. Raises what redis-py does."""
        replies: list[Any] = []
        for _ in range(self._due):
            try:
                replies.append(self._connection.read_response())
            except exceptions.ResponseError as error:
                replies.append(error.with_traceback(None))  # the traceback would hold this list
        self._due = 0
        return replies

    def release(self) -> None:
        """Give the connection back."""
        if self._connection is None:
            return
        if self._due:
            self._connection.disconnect()
        self._pool.release(self._connection)


class Client(redis.Redis):
    """Commands as redis-py has them, sent and read by `send`. Any thread.

    One class a kind of Redis; what is here holds of a single server.
    """

    #: Whether the shards of a namespace are on several servers, one of which may fail alone.
    fail_apart = False

    @property
    def where(self) -> object:
        """The server, for texts: an object whose `str` is its current place."""
        kwargs = self.get_connection_kwargs()
        place = kwargs.get("path") or f"{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}"
        return f"{place}/{kwargs.get('db', 0)}"

    @property
    def database(self) -> str:
        """A name of the database, from the address that the client was given: the same after a failover. A server with
        two addresses has two names."""
        kwargs = self.get_connection_kwargs()
        address = kwargs.get("path") or f"{host_of(kwargs)}:{kwargs.get('port', 6379)}"
        return f"{address}/{kwargs.get('db', 0)}"

    def masters(self) -> list[Client]:
        """A client of each server that has some of the keys. Raises StoreError."""
        return [self]

    def follow(self) -> None:
        """Leave a master that its sentinels have replaced. Asks each sentinel once; does nothing without sentinels.

        Raises:
            StoreUnavailable: the sentinels name another master, and it has not been found yet.
        """

    def close_all(self) -> None:
        """Close the connections; `close` leaves those to sentinels open, since redis-py calls it for each client that
        is collected."""
        self.close()

    def inspect(self, layout: Layout, *, wait_for_replica: bool) -> Server:  # noqa: ARG002 - for a cluster
        """Check whether the server can hold the promise. Raises StoreError, as `redis_server.inspect`."""
        return inspect(self, self.where, wait_for_replica=wait_for_replica)

    def agree(self, layout: Layout) -> list[str]:
        """Write down the settings on which all members have to agree, or compare them with those in the store. Returns:
        the ids of the store, one for each server or shard that may lose its data alone. Raises StoreError."""
        return [agree_on_layout(self, self.where, layout)]

    def send(self, commands: Sequence[Command], confirm: Confirm | None = None) -> tuple[list[Any], list[list[Any]]]:
        """One round trip.

        Returns:
            The replies, with an error as the reply of its command; and the replies to `confirm`, of each server that
            has run commands.

        Raises: what redis-py raises if there is no answer.
        """
        raise NotImplementedError

    def execute_command(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as redis-py's
        """One command."""
        [reply], _ = self.send([args])
        return self.read(reply, args[0], options)

    def read(self, reply: Any, name: str | bytes, options: dict[str, Any]) -> Any:  # noqa: ANN401 - as redis-py's
        """Convert a reply as redis-py does. Raises the reply, if it is an error."""
        if isinstance(reply, exceptions.RedisError):
            raise reply
        callback = self.response_callbacks.get(name)  # type: ignore[no-untyped-call]
        options.pop("keys", None)  # as redis-py does: for its cache
        return reply if callback is None else callback(reply, **options)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:  # noqa: ARG002 - as redis-py's
        """Collect commands to send them together; without a transaction."""
        return _Pipeline(self)


class ServerClient(Client):
    """A client of one server."""

    @classmethod
    def around(cls, client: redis.Redis) -> Self:
        """Make one that uses the connections of another client. That client closes them."""
        return cls(connection_pool=client.connection_pool)

    def send(self, commands: Sequence[Command], confirm: Confirm | None = None) -> tuple[list[Any], list[list[Any]]]:
        """See `Client`."""
        handled = sys.exc_info()[1]
        behind = confirm(key_of(commands[0])) if confirm is not None else ()
        exchange = Exchange(self.connection_pool)
        try:
            exchange.write([*commands, *behind])
            replies = exchange.read()
        except BaseException as error:
            # For its own errors redis-py has closed the connection.
            if not isinstance(error, exceptions.RedisError) or interruption(error, handled) is not None:
                self.close_idle()
            raise
        finally:
            exchange.release()
        count = len(commands)
        return replies[:count], [replies[count:]] if behind else []

    def close_idle(self) -> None:
        """Close idle connections, after redis-py itself may have been interrupted in a call of its own: the greeting of
        a new connection, or a question to a sentinel. Connections that other threads are reading from are not closed
        here: those threads would get arbitrary errors."""
        self.connection_pool.disconnect(inuse_connections=False)


#: Other spellings of localhost.
_HERE = {"127.0.0.1": "localhost", "::1": "localhost"}


def host_of(connection: Mapping[str, Any]) -> str:
    """The host of a connection, for `Client.database`."""
    host = str(connection.get("host", "localhost")).lower()
    return _HERE.get(host, host)


def greet(connection: Any) -> None:  # noqa: ANN401 - of any of redis-py's classes
    """For `redis_connect_func`: greet a new server. A connection whose greeting was interrupted has no user and no
    database yet: it is closed before another thread can get it."""
    try:
        connection.on_connect()
    except BaseException:
        connection.disconnect()
        raise


class _Pipeline(Pipeline):
    def __init__(self, client: Client) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, transaction=False, shard_hint=None)
        self._client = client

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        commands, self.command_stack = self.command_stack, []
        if not commands:
            return []
        replies, _ = self._client.send([args for args, _ in commands])
        return [
            reply
            if isinstance(reply, exceptions.RedisError) and not raise_on_error
            else self._client.read(reply, args[0], options)
            for reply, (args, options) in zip(replies, commands, strict=True)
        ]
