"""LuaClient: redis-py's client of a LuaRedis, without a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from holdfast.dedup.redis_client import Client, key_of
from tests.simulation.lua.redis_data import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redis.exceptions import ResponseError

    from holdfast.dedup.redis_client import Command, Confirm
    from tests.simulation.lua.redis_data import Reply

    #: Takes commands to a server, like `LuaRedis.call`.
    Ask = Callable[[Sequence[Sequence[bytes]]], list[Reply | ResponseError]]


class LuaClient(Client):
    """redis-py's commands and its parsing of replies, with `ask` in place of a connection.

    Args:
        ask: takes commands to the server and returns the replies; raises the errors of redis-py's connections.
        timeout_s: the timeout that the client reports; `ask` keeps it.
    """

    def __init__(self, ask: Ask, timeout_s: float) -> None:
        pool = redis.ConnectionPool(
            host="simulated", socket_timeout=timeout_s, retry=Retry(NoBackoff(), 0), protocol=2, decode_responses=False
        )
        super().__init__(connection_pool=pool)
        self._ask = ask

    def send(self, commands: Sequence[Command], confirm: Confirm | None = None) -> tuple[list[Any], list[list[Any]]]:
        """Implements `Client.send`: the commands run together, with no other client's between."""
        behind = confirm(key_of(commands[0])) if confirm is not None else ()
        replies = self._ask([[_octets(arg) for arg in _words(command)] for command in (*commands, *behind)])
        plain = [reply if isinstance(reply, RedisError) else _plain(reply) for reply in replies]
        return plain[: len(commands)], [plain[len(commands) :]] if behind else []


def _words(args: Sequence[Any]) -> list[Any]:
    """A command's name may be two words."""
    name, *rest = args
    return [*(name.split() if isinstance(name, str) else [name]), *rest]


def _octets(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else repr(value)).encode()


def _plain(reply: Reply) -> Any:
    if isinstance(reply, list):
        return [_plain(each) for each in reply]
    return reply.text if isinstance(reply, Status) else reply
