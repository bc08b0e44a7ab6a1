"""LuaClient: redis-py's client of a LuaRedis, without a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redis
from redis.backoff import NoBackoff
from redis.client import Pipeline
from redis.exceptions import RedisError
from redis.retry import Retry

from holdfast.testing.redis_data import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redis.exceptions import ResponseError

    from holdfast.testing.redis_data import Reply

    #: Takes commands to a server; as `LuaRedis.call`.
    Ask = Callable[[Sequence[Sequence[bytes]]], list[Reply | ResponseError]]


class LuaClient(redis.Redis):
    """Commands of redis-py, and what it makes of replies; but what is between is `ask`.

    Args:
        ask: takes commands there and brings what is replied; raises as redis-py's connections do.
        timeout_s: what it says of itself. It is `ask` that keeps it.
    """

    def __init__(self, ask: Ask, timeout_s: float) -> None:
        pool = redis.ConnectionPool(
            host="simulated", socket_timeout=timeout_s, retry=Retry(NoBackoff(), 0), protocol=2, decode_responses=False
        )
        super().__init__(connection_pool=pool)
        self._ask = ask

    def execute_command(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as redis-py's
        """One command."""
        [reply] = self.ask([(args, options)])
        if isinstance(reply, RedisError):
            raise reply
        return reply

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:  # noqa: ARG002 - as redis-py's
        """Commands that are sent together, and handled with nobody between."""
        return _Pipeline(self)

    def ask(self, commands: Sequence[tuple[Sequence[Any], dict[str, Any]]]) -> list[Any]:
        """Replies as redis-py hands them out; an error is the reply of its command."""
        replies = self._ask([[_octets(arg) for arg in _words(args)] for args, _ in commands])
        return [self._read(reply, args[0], options) for reply, (args, options) in zip(replies, commands, strict=True)]

    def _read(self, reply: Reply | ResponseError, name: str | bytes, options: dict[str, Any]) -> Any:  # noqa: ANN401 - as redis-py's
        if isinstance(reply, RedisError):
            return reply
        read = self.response_callbacks.get(name)  # type: ignore[no-untyped-call]
        options.pop("keys", None)  # as redis-py does: for its cache
        plain = _plain(reply)
        return plain if read is None else read(plain, **options)


class _Pipeline(Pipeline):
    def __init__(self, client: LuaClient) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, transaction=False, shard_hint=None)
        self._client = client

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        commands, self.command_stack = self.command_stack, []
        replies = self._client.ask(commands)
        if raise_on_error:
            for reply in replies:
                if isinstance(reply, RedisError):
                    raise reply
        return replies


def _words(args: Sequence[Any]) -> list[Any]:
    """A command's name may be two words."""
    name, *rest = args
    return [*(name.split() if isinstance(name, str) else [name]), *rest]


def _octets(value: Any) -> bytes:  # noqa: ANN401 - as redis-py's
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else repr(value)).encode()


def _plain(reply: Reply) -> Any:  # noqa: ANN401 - a reply of any shape
    if isinstance(reply, list):
        return [_plain(each) for each in reply]
    return reply.text if isinstance(reply, Status) else reply
