"""A simulated Redis Cluster: the shipped scripts, a server for each shard, and shards that fail apart."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from redis.exceptions import AuthenticationError
from redis.exceptions import TimeoutError as RedisTimeoutError

from holdfast.dedup.redis_client import key_of
from holdfast.dedup.redis_cluster_client import ClusterClient
from holdfast.dedup.redis_errors import store_error
from holdfast.dedup.redis_store import RedisClaims
from holdfast.testing.network import NoAnswer, Refused
from tests.simulation.lua.lua_redis import LuaRedis
from tests.simulation.lua.lua_store import LuaStore
from tests.simulation.lua.redis_client import LuaClient, _octets, _plain, _words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redis.exceptions import ResponseError

    from holdfast.dedup.redis_client import Client
    from holdfast.testing.process import Process
    from holdfast.testing.scheduler import Scheduler
    from tests.simulation.lua.redis_data import Reply

SHARDS = 3
#: How long a shard is away before its replica serves.
_AWAY_S = 3.0


class _Node(NamedTuple):
    name: str
    server_type: str = "primary"


class ShardStore(LuaStore):
    """Some of the shards fail, each time others. A call that needs one that is away is applied at the rest."""

    def __init__(self, scheduler: Scheduler, **settings: Any) -> None:
        super().__init__(scheduler, shards=SHARDS, **settings)
        self.servers = [LuaRedis(self.process.runtime) for _ in range(SHARDS)]
        self._chance = Random(f"{scheduler.seed} shards")
        self._away_until = [0.0] * SHARDS

    def claims(self, process: Process) -> RedisClaims:
        """As `LuaStore.claims`, by the client of a cluster."""
        if process not in self._claims:
            self._claims[process] = RedisClaims(
                _Client(self, process, self._timeout_s),
                lease_s=self._lease_s,
                window_s=self._window_s,
                hash_keys=self._layout.hash_keys,
                shards=SHARDS,
                keys_expected=1000,
                runtime=process.runtime,
            )
        return self._claims[process]

    def empty(self) -> None:
        for shard in self._some():
            self.servers[shard].restart()

    def handle(self, commands: Sequence[Sequence[bytes]]) -> list[Reply | ResponseError]:
        """Each at the server that has its key. Raises NoAnswer: one of these is away."""
        replies: list[Any] = []
        away, shard = False, 0
        for n, command in enumerate(commands):
            shard = next((found for each in commands[n:] if (found := self._shard(each)) is not None), shard)
            if self._away_until[shard] > self._scheduler.now:
                away = True
            else:
                replies += self.servers[shard].call([command])
        if away:
            raise NoAnswer
        return replies

    def _shard(self, command: Sequence[bytes]) -> int | None:
        split = self._layout.split(key_of(tuple(command)))
        return None if split is None else split[0]

    def _some(self) -> list[int]:
        return self._chance.sample(range(SHARDS), self._chance.choice([1, 1, 2, SHARDS]))

    def _look(self, *commands: Sequence[bytes]) -> list[Any]:
        return [self.servers[self._shard(each) or 0].call([each])[0] for each in commands]

    def _replica(self) -> Callable[[], None]:
        replicas = {shard: self.servers[shard].replica() for shard in self._some()}

        def take_over() -> None:
            for shard, replica in replicas.items():
                replica()
                self._away_until[shard] = self._scheduler.now + self._chance.random() * _AWAY_S

        return take_over


class _Client(ClusterClient):
    """As redis-py's nodes would be asked, over the world's network."""

    def __init__(self, store: ShardStore, process: Process, timeout_s: float) -> None:
        super().__init__(_no_cluster, {"socket_timeout": timeout_s, "protocol": 2}, "simulated", None, ours=False)
        self._store, self._process, self._timeout_s = store, process, timeout_s

    def send(self, commands: Sequence[tuple[Any, ...]], confirm: object = None) -> tuple[list[Any], list[list[Any]]]:
        octets = [[_octets(arg) for arg in _words(command)] for command in commands]
        return [_plain(reply) for reply in self._ask(lambda: self._store.handle(octets))], []

    def look(self) -> None: ...

    def nodes(self) -> list[tuple[Any, Client]]:
        return [(_Node(f"shard {shard}"), self._at(server)) for shard, server in enumerate(self._store.servers)]

    def _at(self, server: LuaRedis) -> LuaClient:
        return LuaClient(lambda commands: self._ask(lambda: server.call(commands)), self._timeout_s)

    def master_of(self, key: bytes) -> str:
        return f"shard {self._store._shard([b'GET', key])}"

    def _ask(self, request: Callable[[], list[Any]]) -> list[Any]:
        try:
            return self._store.network.ask(self._process, request)
        except NoAnswer:
            error: Exception = RedisTimeoutError("Timeout reading from socket")
        except Refused as refused:
            error = AuthenticationError(str(refused))
        raise store_error(error, "simulated") from error


def _no_cluster() -> Any:
    raise AssertionError("nothing is reached here")
