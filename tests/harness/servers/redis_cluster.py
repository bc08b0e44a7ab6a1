"""A real Redis Cluster for the tests: masters, each with a replica, from the same `redis-server`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Self

import pytest
import redis
from redis.crc import key_slot

from tests.harness.processes import ServerFailed, free_ports
from tests.harness.servers.redis import RedisServer
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.harness.servers.certificates import Certificates

_SLOTS = 16_384
_START_S = 60.0


class Node(RedisServer):
    """One server of a cluster; `bus` is the port for the others."""

    def __init__(self, bus: int, tls_port: int, **settings: Any) -> None:
        self.bus, self.tls_port = bus, tls_port
        super().__init__(**settings)

    @property
    def id(self) -> str:
        """As the cluster knows it."""
        with self.client() as client:
            return str(client.execute_command("CLUSTER MYID").decode())

    @property
    def name(self) -> str:
        """Its address."""
        return f"127.0.0.1:{self.port}"

    def ask(self, *command: Any) -> Any:
        """A command of this very node."""
        with self.client() as client:
            return client.execute_command(*command)

    def slots(self) -> list[list[Any]]:
        """Who has which slots, as this node sees it."""
        with self.client() as client:
            return list(client.execute_command("CLUSTER SLOTS"))

    def info(self) -> dict[str, str]:
        """CLUSTER INFO."""
        with self.client() as client:
            return dict(client.execute_command("CLUSTER INFO"))


class RedisCluster:
    """Three masters, each with a replica. `with` starts and stops it.

    Args:
        node_timeout_ms: after so long without an answer a master is replaced by its replica.
        full_coverage: whether all nodes refuse everything while a slot has no master.
        replicas: whether each master has one.
        password: of each node.
        options: of each redis-server.
        tls: each node listens for TLS too, and speaks it with the others.
    """

    def __init__(
        self,
        *,
        node_timeout_ms: int = 1_000,
        full_coverage: bool = True,
        replicas: bool = True,
        password: str = "",
        options: Sequence[str] = (),
        tls: Certificates | None = None,
    ) -> None:
        self._node_timeout_ms, self._full_coverage = node_timeout_ms, full_coverage
        self._replicated, self._password, self._options, self._tls = replicas, password, options, tls
        self.masters: list[Node] = []
        self.replicas: list[Node] = []
        self._others: list[Node] = []

    @property
    def nodes(self) -> list[Node]:
        return [*self.masters, *self.replicas, *self._others]

    @property
    def url(self) -> str:
        """Two of its nodes."""
        a, b = self.masters[0], self.masters[1]
        return f"redis+cluster://{f':{self._password}@' if self._password else ''}{a.name},{b.name}"

    def client(self) -> redis.RedisCluster:
        """redis-py's own, for looking in from the side. Close it."""
        first = self.masters[0]
        return redis.RedisCluster(
            host="127.0.0.1", port=first.port, password=self._password or None, socket_timeout=5.0
        )

    def start_node(self) -> Node:
        """A server that knows no other yet."""
        bus, tls_port = free_ports(2)
        tls = () if self._tls is None else ("--tls-cluster", "yes", *self._tls.redis_too(tls_port))
        return Node(
            bus,
            tls_port,
            more=[
                *tls,
                *("--cluster-enabled", "yes", "--cluster-port", str(bus)),
                *("--cluster-node-timeout", str(self._node_timeout_ms)),
                # A master without slots stays one: it would follow another on the way there and back.
                *("--cluster-allow-replica-migration", "no"),
                *("--cluster-require-full-coverage", "yes" if self._full_coverage else "no"),
                *(("--masterauth", self._password) if self._password else ()),
                *self._options,
            ],
            password=self._password,
        )

    def leading(self) -> list[Node]:
        """Those that live and are masters now."""
        return [node for node in self.nodes if node.alive and node.ask("ROLE")[0] in (b"master", "master")]

    def with_data(self) -> list[Node]:
        """Those masters that have keys, those with most first."""
        sizes = {node.port: int(node.ask("DBSIZE")) for node in self.leading()}
        having = [node for node in self.nodes if sizes.get(node.port)]
        return sorted(having, key=lambda node: sizes[node.port], reverse=True)

    def follower_of(self, master: Node) -> Node:
        """Its replica now."""
        [row, *_] = [row for row in master.slots() if int(row[2][1]) == master.port]
        return self.node_at(int(row[3][1]))

    def evaluated(self) -> int:
        """How many scripts the masters have run since their statistics were reset; what was redirected is none."""
        count = 0
        for node in self.leading():
            stats = node.ask("INFO", "commandstats")
            count += sum(
                each["calls"] - each["failed_calls"]
                for each in map(stats.get, ("cmdstat_eval", "cmdstat_evalsha"))
                if each
            )
        return count

    def reset_statistics(self) -> None:
        """Of all nodes."""
        for node in self.nodes:
            node.ask("CONFIG RESETSTAT")

    def add_master(self) -> Node:
        """Another one, which all know and which has no slots yet."""
        node = self.start_node()
        self._others.append(node)
        self._meet(node)
        self.await_settled()
        return node

    def master_of(self, key: bytes | str) -> Node:
        """Who has it, as the first node that answers sees it."""
        slot = key_slot(key.encode() if isinstance(key, str) else key)
        for node in self.nodes:
            with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
                for first, last, master, *_ in node.slots():
                    if first <= slot <= last:
                        return self.node_at(int(master[1]))
        raise AssertionError(f"nobody has slot {slot}")

    def node_at(self, port: int) -> Node:
        return next(node for node in self.nodes if node.port == port)

    def replica_of(self, master: Node) -> Node:
        """Its replica, as started."""
        return self.replicas[self.masters.index(master)]

    def remove(self, node: Node) -> None:
        """One that has no slots any more."""
        gone = node.id
        node.stop()
        self._others.remove(node)
        for each in self.nodes:
            each.ask("CLUSTER FORGET", gone)

    def move(
        self, key: bytes | str, to: Node, *, source: Node | None = None, between: Callable[[], object] = lambda: None
    ) -> None:
        """Move the slot of a key, with all that is in it. `between` is called when it has begun, and after each of its
        keys."""
        slot, source = key_slot(key.encode() if isinstance(key, str) else key), source or self.master_of(key)
        if source is to:
            return
        to.ask("CLUSTER SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER SETSLOT", slot, "MIGRATING", to.id)
        between()
        while names := source.ask("CLUSTER GETKEYSINSLOT", slot, 1):
            auth = ("AUTH", to.password) if to.password else ()
            source.ask("MIGRATE", "127.0.0.1", to.port, "", 0, 5_000, *auth, "KEYS", *names)
            between()
        for node in (to, source, *(each for each in self.leading() if each not in (to, source))):
            node.ask("CLUSTER SETSLOT", slot, "NODE", to.id)

    def cut(self, replica: Node) -> None:
        """What its master acknowledges from now on does not reach it, and it is promoted all the same."""
        master = self.masters[self.replicas.index(replica)]

        def caught_up() -> bool:
            told = master.ask("INFO", "replication")
            return bool(told["slave0"]["offset"] == told["master_repl_offset"])

        until(caught_up)
        replica.ask("CONFIG SET", "masteruser", "nobody")
        replica.ask("CONFIG SET", "masterauth", "nothing")
        master.ask("CLIENT KILL", "TYPE", "replica")
        until(lambda: replica.ask("INFO", "replication")["master_link_status"] == "down")

    def mend(self, replica: Node) -> None:
        """It follows its master again."""
        replica.ask("CONFIG SET", "masteruser", "")
        replica.ask("CONFIG SET", "masterauth", self._password)
        until(lambda: replica.ask("INFO", "replication")["master_link_status"] == "up")

    def await_promoted(self, replica: Node) -> None:
        """Until the others take it for a master."""
        living = [node for node in self.nodes if node.alive]

        def seen_by(node: Node) -> bool:
            return node.info()["cluster_state"] == "ok" and replica.port in {int(row[2][1]) for row in node.slots()}

        def promoted() -> bool:
            return all(seen_by(node) for node in living)

        until(promoted, patience_s=_START_S)

    def await_settled(self, *, slots: bool = True) -> None:
        """Until each node knows all others, and, with `slots`, each replica follows its master."""

        def agrees(node: Node) -> bool:
            info = node.info()
            if int(info["cluster_known_nodes"]) != len(self.nodes):
                return False
            if not slots:
                return True
            followers = {int(replica[1]) for row in node.slots() for replica in row[3:]}
            return info["cluster_state"] == "ok" and len(followers) == len(self.replicas)

        def settled() -> bool:
            links = [node.ask("INFO", "replication").get("master_link_status", "up") for node in self.nodes]
            return all(agrees(node) for node in self.nodes) and (not slots or set(links) == {"up"})

        try:
            until(settled, patience_s=_START_S, despite=(redis.RedisError,))
        except AssertionError as error:
            raise ServerFailed(f"the nodes of a Redis Cluster did not agree: {self.nodes[0].info()}") from error

    def flush(self) -> None:
        """All is forgotten, by each master."""
        for node in self.leading():
            node.ask("FLUSHALL")

    def __enter__(self) -> Self:
        try:
            self.masters = [self.start_node() for _ in range(3)]
            self.replicas = [self.start_node() for _ in range(3 if self._replicated else 0)]
            for n, master in enumerate(self.masters):
                first, last = n * _SLOTS // 3, (n + 1) * _SLOTS // 3 - 1
                master.ask("CLUSTER ADDSLOTSRANGE", first, last)
                master.ask("CLUSTER SET-CONFIG-EPOCH", n + 1)
            for node in self.nodes[1:]:
                self._meet(node)
            self.await_settled(slots=False)
            for master, replica in zip(self.masters, self.replicas, strict=False):
                replica.ask("CLUSTER REPLICATE", master.id)
            self.await_settled()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def _meet(self, node: Node) -> None:
        first = self.masters[0]
        node.ask("CLUSTER MEET", "127.0.0.1", first.port, first.bus)


@pytest.fixture(scope="session")
def shared_redis_cluster() -> Iterator[RedisCluster]:
    """One cluster for all tests that neither stop nor move any of it."""
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture
def redis_cluster(shared_redis_cluster: RedisCluster) -> RedisCluster:
    """That one, empty."""
    shared_redis_cluster.flush()
    return shared_redis_cluster
