"""LuaStore: the store that is shipped, `RedisClaims` and its scripts, as a server of a simulated world."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis.exceptions import AuthenticationError
from redis.exceptions import TimeoutError as RedisTimeoutError

from holdfast.dedup.redis_coordinator import RedisCoordinator
from holdfast.dedup.redis_store import RedisClaims
from holdfast.testing.lua_redis import LuaRedis
from holdfast.testing.network import NoAnswer, Refused
from holdfast.testing.redis_client import LuaClient
from holdfast.testing.store import StoreServer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redis.exceptions import ResponseError

    from holdfast.testing.process import Process
    from holdfast.testing.redis_data import Reply
    from holdfast.testing.scheduler import Scheduler

_WEEK_S = 7 * 86_400.0


class LuaStore(StoreServer):
    """A Redis in this process that runs the shipped scripts; its clock is the world's. Needs `lupa`.

    Args:
        scheduler: of the world.
        lease_s: as of `RedisClaims`.
        window_s: as there.
        timeout_s: how long a process waits for a reply.
        hash_keys: as of `RedisClaims`.
        shards: as there.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        lease_s: float | None = None,
        window_s: float = _WEEK_S,
        timeout_s: float = 1.0,
        hash_keys: bool = False,
        shards: int = 1,
    ) -> None:
        super().__init__(scheduler, timeout_s=timeout_s)
        #: What it holds: for judges, who change nothing.
        self.redis = LuaRedis(self.process.runtime)
        self._lease_s, self._window_s, self._timeout_s = lease_s, window_s, timeout_s
        self._hash_keys, self._shards = hash_keys, shards

    def claims(self, process: Process) -> RedisClaims:
        """The store, as that process sees it."""
        return RedisClaims(
            self._client(process),
            lease_s=self._lease_s,
            window_s=self._window_s,
            hash_keys=self._hash_keys,
            shards=self._shards,
            # Few in a world: so that buckets are shared.
            keys_expected=1000,
            runtime=process.runtime,
        )

    def coordinator(self, process: Process) -> RedisCoordinator:
        """Groups in the same server, as that process sees them."""
        return RedisCoordinator(self.claims(process), runtime=process.runtime)

    def empty(self) -> None:
        """It is started again and has forgotten everything."""
        self.redis.restart()

    def _replica(self) -> Callable[[], None]:
        return self.redis.replica()

    def _client(self, process: Process) -> LuaClient:
        def ask(commands: Sequence[Sequence[bytes]]) -> list[Reply | ResponseError]:
            try:
                return self.network.ask(process, lambda: self.redis.call(commands))
            except NoAnswer:
                raise RedisTimeoutError("Timeout reading from socket") from None
            except Refused as refused:
                raise AuthenticationError(str(refused)) from None

        return LuaClient(ask, self._timeout_s)
