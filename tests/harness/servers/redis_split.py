"""A Redis Cluster that is split: a master with the clients that reach it alone on one side, all others on the other."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Self

from holdfast.dedup.redis_store import RedisClaims
from tests.harness.waiting import until
from tests.harness.wire import Wire, hang_up

if TYPE_CHECKING:
    from typing import Any

    from tests.harness.servers.redis_cluster import Node, RedisCluster

_CHUNK = 1 << 16
#: Where each message of the nodes among each other has the id of who has sent it.
_SENDER = slice(40, 80)


class Split:
    """Wires to the buses of all nodes, and to their ports for clients of each side. Nobody is cut off yet."""

    def __init__(self, cluster: RedisCluster, alone: Node) -> None:
        """Args: alone: the master that will have nobody but the clients of its side."""
        self.alone, self._cluster = alone, cluster
        ids = {node.port: node.id for node in cluster.nodes}
        self._buses = [_BusWire(node.bus, ids[node.port], ids[alone.port]) for node in cluster.nodes]
        self._inside = {node.port: Wire(node.port) for node in cluster.nodes}
        self._outside = {node.port: Wire(node.port) for node in cluster.nodes}
        for node, bus in zip(cluster.nodes, self._buses, strict=True):
            node.ask("CONFIG SET", "cluster-announce-bus-port", bus.port)
        until(lambda: all(self._known_by(node) for node in cluster.nodes))
        cluster.await_settled()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for bus in self._buses:
            bus.close()
        for wire in (*self._inside.values(), *self._outside.values()):
            wire.close()

    def inside(self, **settings: Any) -> RedisClaims:
        """For a client on the side of that master."""
        return _claims(self._inside, self.alone.port, **settings)

    def outside(self, **settings: Any) -> RedisClaims:
        """For one on the other side."""
        return _claims(self._outside, next(port for port in self._outside if port != self.alone.port), **settings)

    def cut(self) -> None:
        """From now on nothing passes between the sides."""
        replica = self._cluster.follower_of(self.alone)
        replica.ask("CONFIG SET", "masteruser", "nobody")
        replica.ask("CONFIG SET", "masterauth", "nothing")
        self.alone.ask("CLIENT KILL", "TYPE", "replica")
        for bus in self._buses:
            bus.cut()
        for port, wire in self._inside.items():
            if port != self.alone.port:
                wire.cut()
        self._outside[self.alone.port].cut()

    def mend(self) -> None:
        """They find each other again."""
        for bus in self._buses:
            bus.mend()
        for wire in (*self._inside.values(), *self._outside.values()):
            wire.mend()

    def _known_by(self, node: Node) -> bool:
        told = str(node.ask("CLUSTER", "NODES"))
        return all(f"@{bus.port}" in told for bus in self._buses)


def _claims(wires: dict[int, Wire], first: int, **settings: Any) -> RedisClaims:
    return RedisClaims.from_url(
        f"redis+cluster://127.0.0.1:{wires[first].port}",
        address_remap=lambda place: (place[0], wires[place[1]].port if place[1] in wires else place[1]),
        **settings,
    )


class _BusWire:
    """To the bus of one node. Cut, it ends what comes from that master, or all where the node is that master."""

    def __init__(self, target: int, owner: str, alone: str) -> None:
        self._target, self._owner, self._alone = target, owner, alone
        self._lock, self._is_cut = threading.Lock(), False
        self._between: set[socket.socket] = set()  # of the two sides
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, name=f"bus-{self.port}", daemon=True).start()

    def cut(self) -> None:
        with self._lock:
            self._is_cut, between = True, [*self._between]
        for each in between:
            hang_up(each)

    def mend(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._connect, args=(client,), name=f"bus-{self.port}", daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            first = b""
            while len(first) < _SENDER.stop:
                more = client.recv(_CHUNK)
                if not more:
                    return
                first += more
            with self._lock:
                if self._alone in (self._owner, first[_SENDER].decode()):
                    if self._is_cut:
                        return
                    self._between.add(client)
            with socket.create_connection(("127.0.0.1", self._target), 5.0) as server:
                server.settimeout(None)
                server.sendall(first)
                back = threading.Thread(target=_pass_on, args=(server, client), daemon=True)
                back.start()
                _pass_on(client, server)
                back.join()
        with self._lock:
            self._between.discard(client)


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    for each in (source, sink):
        hang_up(each)
