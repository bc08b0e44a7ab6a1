"""The stores of a soak: one Redis, one that Sentinel fails over, a Redis Cluster. Each can be harmed, and heals."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self

from tests.harness.servers.redis import RedisServer
from tests.harness.servers.redis_cluster import RedisCluster
from tests.harness.servers.sentinels import Sentinels
from tests.harness.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

StoreName = Literal["one", "sentinel", "cluster"]
STORES: Final[tuple[StoreName, ...]] = ("one", "sentinel", "cluster")
#: Parts of the group's data, each with a slot of its own: of a cluster more than one master is asked.
_SHARDS = 4


class Store(Protocol):
    """A context manager. What harms it returns what heals it; that returns when it is whole again."""

    def settings(self, line: int) -> dict[str, Any]:
        """What a member at that line is told of it."""
        ...

    def wires(self, line: int) -> list[Wire]:
        """By which that line leads to it. Cut all of them, or none."""
        ...

    def kill(self) -> Callable[[], None]:
        """A server that takes writes is killed."""
        ...

    def pause(self) -> Callable[[], None]:
        """A server that takes writes stands still. Where another is promoted, it finds that out when it goes on."""
        ...

    def move(self, random: Random) -> None:
        """Give some of the data to another server."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class OneRedis:
    """A server with an append-only file: who is killed comes back with all that it has acknowledged."""

    def __init__(self, lines: int) -> None:
        self._stack = ExitStack()
        self._server = self._stack.enter_context(RedisServer(aof=True))
        self._wires = [self._stack.enter_context(Wire(self._server.port)) for _ in range(lines)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def settings(self, line: int) -> dict[str, Any]:
        return {"redis_url": f"redis://127.0.0.1:{self._wires[line].port}/0"}

    def wires(self, line: int) -> list[Wire]:
        return [self._wires[line]]

    def kill(self) -> Callable[[], None]:
        self._server.kill()
        return self._server.restart

    def pause(self) -> Callable[[], None]:
        self._server.pause()
        return self._server.resume

    def move(self, random: Random) -> None:
        raise AssertionError("there is no other server")


class FailingOver:
    """A master with two replicas and three sentinels. These name the servers' own addresses: no line leads there.

    Guarded: else a master that goes on after a silence acknowledges for seconds what nobody else will ever know."""

    def __init__(self, lines: int) -> None:
        self._store = Sentinels(guarded=True)

    def __enter__(self) -> Self:
        self._store.__enter__()
        return self

    def __exit__(self, *how: object) -> None:
        self._store.__exit__(*how)

    def settings(self, line: int) -> dict[str, Any]:
        return {"redis_url": self._store.url()}

    def wires(self, line: int) -> list[Wire]:
        return []

    def kill(self) -> Callable[[], None]:
        dead = self._store.leading()
        dead.kill()
        return lambda: self._store.replace(dead)

    def pause(self) -> Callable[[], None]:
        silent = self._store.leading()
        silent.pause()

        def heal() -> None:
            silent.resume()
            self._store.await_settled()

        return heal

    def move(self, random: Random) -> None:
        raise AssertionError("each server has all of it")


class Clustered:
    """Three masters, each with a replica. Each line has a wire to each node, and its members take them for the nodes'
    addresses."""

    def __init__(self, lines: int) -> None:
        self._stack, self._lines = ExitStack(), lines
        self._cluster = RedisCluster()
        self._wires: list[dict[int, Wire]] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._cluster)
            ports = [each.port for each in self._cluster.nodes]
            self._wires = [{port: stack.enter_context(Wire(port)) for port in ports} for _ in range(self._lines)]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def settings(self, line: int) -> dict[str, Any]:
        wires = self._wires[line]
        places = ",".join(f"127.0.0.1:{each.port}" for each in wires.values())
        return {
            "redis_url": f"redis+cluster://{places}",
            "redis_ports": {str(port): each.port for port, each in wires.items()},
            "shards": _SHARDS,
        }

    def wires(self, line: int) -> list[Wire]:
        return [*self._wires[line].values()]

    def kill(self) -> Callable[[], None]:
        dead = self._cluster.with_data()[0]
        replica = self._cluster.follower_of(dead)
        dead.kill()

        def heal() -> None:
            self._cluster.await_promoted(replica)
            dead.restart()
            self._cluster.await_settled()

        return heal

    def pause(self) -> Callable[[], None]:
        silent = self._cluster.with_data()[0]
        silent.pause()

        def heal() -> None:
            silent.resume()
            self._cluster.await_settled()

        return heal

    def move(self, random: Random) -> None:
        """A slot of the group's, with what is in it."""
        source = self._cluster.with_data()[0]
        to = random.choice([each for each in self._cluster.leading() if each is not source])
        self._cluster.move(source.ask("RANDOMKEY"), to, source=source)
        self._cluster.await_settled()


MADE: Final[dict[StoreName, Callable[[int], Store]]] = {
    "one": OneRedis,
    "sentinel": FailingOver,
    "cluster": Clustered,
}
