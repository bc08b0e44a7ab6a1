"""ClusterClient: a Redis Cluster with the interface of a single server.

redis-py's RedisCluster knows the nodes and has their connections. It does not send the commands: its pipeline resends
commands without an answer, whatever its `retry` says, and it does not find a node that an ASK names by another address
than the map of slots. Here a command is sent again in one case only: a node has refused it by MOVED or ASK, so it is
not applied there, now or later.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import redis
from redis import exceptions
from redis.crc import key_slot

from holdfast.dedup.redis_client import Client, Exchange, ServerClient, key_of
from holdfast.dedup.redis_errors import asking, interruption, store_error
from holdfast.dedup.redis_server import agree_on_id, inspect, keeps_keys
from holdfast.errors import AccessRefused, StoreError, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from redis import ConnectionPool
    from redis.cluster import ClusterNode, RedisCluster

    from holdfast.dedup.redis_client import Command, Confirm
    from holdfast.dedup.redis_layout import Layout
    from holdfast.dedup.redis_server import Server

    Address = tuple[str, int]
    #: The address of a node as the cluster gives it -> the address at which it can be reached.
    Remap = Callable[[Address], Address]

#: Tries of one command in one call: its slot may be moving from one node to another, and move on meanwhile.
_REDIRECTS = 5
#: Errors that a node has replied with, among the causes of redis-py's error.
_REPLIED = (exceptions.ResponseError, exceptions.AuthenticationError)
#: After one of these replies the nodes are asked for again: the node knows a newer state of the cluster than this
#: client.
_LOOK_AGAIN = (exceptions.ClusterDownError, exceptions.ReadOnlyError)


class ClusterClient(Client):
    """Sends each command to the master that has its key; the commands of one call to all masters at once. Any thread.

    A command without a key goes to the node of the next command with a key.

    Args:
        reach: makes redis-py's client, which connects. Called until it succeeds, and again when no known node answers.
        connections: the options of its connections.
        where: for error texts.
        remap: applied to addresses in redirects; the client that `reach` makes has to have the same.
        ours: whether this object closes that client.
    """

    fail_apart = True

    def __init__(
        self,
        reach: Callable[[], RedisCluster],
        connections: Mapping[str, Any],
        where: str,
        remap: Remap | None,
        *,
        ours: bool,
    ) -> None:
        super().__init__(connection_pool=_Pools(self, connections))
        self._where = where
        self._reach, self._remap, self._ours = reach, remap, ours
        self._looking = threading.Lock()
        self._cluster: RedisCluster | None = None
        #: The nodes may have changed since they were asked for.
        self._stale = False
        #: Slots that have moved since then, from redirects.
        self._moved: dict[int, ClusterNode] = {}

    def send(self, commands: Sequence[Command], confirm: Confirm | None = None) -> tuple[list[Any], list[list[Any]]]:
        """One round trip, and more for redirected commands.

        Returns:
            The replies, with an error as the reply of its command; and the replies to `confirm`, of each node that has
            run commands.

        Raises:
            StoreUnavailable: no answer from one of the nodes. Some commands may have been applied.
        """
        replies: list[Any] = [None] * len(commands)
        confirmed: list[list[Any]] = []
        left: dict[int, ClusterNode | None] = dict.fromkeys(range(len(commands)))
        for _ in range(_REDIRECTS):
            batches = self._batches(commands, left)
            self._exchange(batches, commands, replies, confirm)
            confirmed += [batch.confirmed for batch in batches if confirm and not batch.redirected(replies)]
            left = {}
            for batch in batches:
                for item in batch.items:
                    if isinstance(replies[item], exceptions.AskError):
                        left[item] = self._redirected(replies[item], batch.node)
            if not left:
                break
        if any(isinstance(reply, _LOOK_AGAIN) for reply in replies):
            self._stale = True
        return replies, confirmed

    def look(self) -> None:
        """Ask the cluster which nodes it has.

        Raises:
            StoreUnavailable, StoreRefused: no known node has answered this.
        """
        self._stale = True
        self._known()

    def nodes(self) -> list[tuple[ClusterNode, Client]]:
        """All known nodes, each with a client that uses its connections.

        Raises:
            StoreUnavailable, StoreRefused: as `look`.
        """
        cluster = self._known()
        return [
            (node, ServerClient.around(cluster.get_redis_connection(node)))
            for node in list(cluster.nodes_manager.nodes_cache.values())
        ]

    def masters(self) -> list[Client]:
        """A client of each node that has slots.

        Raises:
            StoreUnavailable, StoreRefused: as `look`.
        """
        return [client for node, client in self.nodes() if node.server_type == "primary"]

    def master_of(self, key: bytes) -> str:
        """The address of the node that has this key.

        Raises:
            StoreUnavailable, StoreRefused: as `look`, and where no node has it now.
        """
        return str(self._master(self._known(), key).name)

    @property
    def where(self) -> object:
        """The nodes that were given, for texts."""
        return self._where

    @property
    def database(self) -> str:
        """See `Client`: some of the cluster's nodes."""
        return " ".join(sorted(self._where.split(", ")))

    def inspect(self, layout: Layout, *, wait_for_replica: bool) -> Server:
        """Read INFO of each node, and check whether the cluster can hold the promise.

        Raises:
            StoreUnavailable: no answer from a node with one of our shards, or no replica of it though one is asked for.
            StoreRefused: a node is too old, or evicts keys. Nodes without a shard of ours may be silent.
        """
        self.look()
        with asking(self.where):
            holders = [self.master_of(key) for key in layout.id_keys]
        found: dict[str, Server] = {}
        for node, at in self.nodes():
            name = str(node.name)
            place = f"{name} in the cluster at {self.where}"
            try:
                if node.server_type == "primary":
                    wait = wait_for_replica and name in holders
                    found[name] = inspect(at, place, wait_for_replica=wait, node=True)
                else:  # a replica, which may become a master later
                    with asking(place):
                        keeps_keys(at.info(), place)
            except StoreUnavailable:
                if name in holders:
                    self.disconnect_idle()  # another node may have taken its place by now
                    raise
        servers = [found[name] for name in sorted(found)]
        texts = {server.text for server in servers}
        described = (
            [f"each: {texts.pop()}"] if len(texts) == 1 else [f"{name}: {found[name].text}" for name in sorted(found)]
        )
        ours = len(set(holders))
        described.append(f"the {layout.shards} shard{'s' * (layout.shards > 1)} of this namespace: on {ours} of them")
        text = f"Redis Cluster with {len(servers)} master{'s' * (len(servers) > 1)}; {'; '.join(described)}"
        return servers[0]._replace(
            version=min(server.version for server in servers),
            replicas=min(server.replicas for server in servers),
            text=text,
        )

    def agree(self, layout: Layout) -> list[str]:
        """See `Client`: an id for each shard, since shards fail apart."""
        super().agree(layout)
        keys = layout.id_keys
        with asking(self.where), self.pipeline() as pipeline:
            for key in keys:
                pipeline.get(key)
            found = pipeline.execute()
        return [
            agree_on_id(self, self.where, key) if stored is None else stored.decode()
            for key, stored in zip(keys, found, strict=True)
        ]

    def close(self) -> None:
        """Close the connections, if they are ours."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None and self._ours:
            cluster.close()

    def disconnect_idle(self) -> None:
        """Close idle connections, and ask for the nodes before the next command is sent."""
        self._stale = True
        cluster = self._cluster
        for node in list(cluster.nodes_manager.nodes_cache.values()) if cluster is not None else ():
            if node.redis_connection is not None:
                node.redis_connection.connection_pool.disconnect(inuse_connections=False)

    def _known(self) -> RedisCluster:
        """The cluster. Asks for the nodes first, if they may have changed."""
        cluster = self._cluster
        if cluster is not None and not self._stale:
            return cluster
        with self._looking:
            cluster = self._cluster
            if cluster is not None and not self._stale:
                return cluster  # another thread has asked meanwhile
            self._stale = False  # before the question: a thread that sets it meanwhile has a doubt about the answer
            try:
                if cluster is None:
                    cluster = self._list_nodes(self._reach)
                else:
                    self._list_nodes(cluster.nodes_manager.initialize)
            except BaseException as error:
                self._stale = True
                if isinstance(error, StoreError) and cluster is not None and self._ours:
                    # All nodes may have other addresses by now: `reach` begins with the addresses that were given.
                    self._cluster = None
                    cluster.close()
                raise
            self._cluster, self._moved = cluster, {}
            return cluster

    def _list_nodes(self, ask: Callable[[], Any]) -> Any:  # noqa: ANN401 - of either kind
        with asking(self.where, _not_listed):
            return _without_signals(ask)

    def _master(self, cluster: RedisCluster, key: bytes) -> ClusterNode:
        if not key:  # no command has a key: any node will do
            return next(iter(cluster.nodes_manager.nodes_cache.values()))
        slot = key_slot(key)
        moved = self._moved.get(slot)
        if moved is not None:
            return moved
        try:
            return cluster.nodes_manager.get_node_from_slot(slot)
        except (exceptions.RedisError, exceptions.RedisClusterException, LookupError) as error:
            self._stale = True
            raise StoreUnavailable(f"no node of the Redis Cluster at {self.where} has slot {slot} now") from error

    def _batches(self, commands: Sequence[Command], left: Mapping[int, ClusterNode | None]) -> list[_Batch]:
        """The remaining commands, one batch a node.

        Args:
            commands: all of the call.
            left: number of a remaining command -> the node that an ASK has named for it, or None.
        """
        cluster = self._known()
        batches: dict[str, _Batch] = {}
        key = b""
        for item in sorted(left, reverse=True):
            key = key_of(commands[item]) or key
            asked = left[item]
            node = asked or self._master(cluster, key)
            batch = batches.get(node.name)
            if batch is None:
                batch = batches[node.name] = _Batch(node, cluster.get_redis_connection(node).connection_pool)
            batch.items.insert(0, item)
            if asked is not None:
                batch.asking.add(item)
        return list(batches.values())

    def _exchange(
        self, batches: Sequence[_Batch], commands: Sequence[Command], replies: list[Any], confirm: Confirm | None
    ) -> None:
        """Write to all nodes, then read from all."""
        batch, handled = batches[0], sys.exc_info()[1]
        try:
            with asking(
                self.where, lambda error, _: store_error(error, f"{batch.node.name} of the cluster at {self.where}")
            ):
                for batch in batches:
                    batch.write(commands, confirm)
                for batch in batches:
                    batch.read(replies)
        except BaseException as error:
            self._stale = True
            if interruption(error, handled) is not None:
                self.disconnect_idle()
            raise
        finally:
            for batch in batches:
                batch.release()

    def _redirected(self, error: exceptions.AskError, by: ClusterNode) -> ClusterNode | None:
        """Return the node that an ASK names. For a MOVED note the slot's new node, and return None."""
        host, port = error.host or by.host, error.port  # without a host it is that of the node that has replied
        if self._remap is not None:
            host, port = self._remap((host, port))
        cluster = self._known()
        node = cluster.nodes_manager.get_node(host, port)
        if node is None:
            self.look()
            cluster = self._known()
            node = cluster.nodes_manager.get_node(host, port)
        if node is None:
            self._stale = True
            raise StoreUnavailable(
                f"the Redis Cluster at {self.where} names {host}:{port} for slot {error.slot_id}, and does not have it "
                "among its nodes: if this process needs other addresses than the cluster names, give address_remap"
            )
        if not isinstance(error, exceptions.MovedError):
            return node
        self._moved[error.slot_id] = node
        return None


class _Batch:
    """The commands of one call for one node."""

    def __init__(self, node: ClusterNode, pool: ConnectionPool) -> None:
        self.node, self._exchange = node, Exchange(pool)
        self.items: list[int] = []
        self.asking: set[int] = set()
        self.confirmed: list[Any] = []
        #: For each outstanding reply, what it belongs to: an item, "confirm", or "asking".
        self._due: list[int | str] = []

    def write(self, commands: Sequence[Command], confirm: Confirm | None) -> None:
        """Send all commands. Args: commands: all of the call."""
        sent: list[Command] = []
        for item in self.items:
            self._add(sent, commands[item], item, asking=item in self.asking)
        if confirm is not None:
            for command in confirm(key_of(commands[self.items[0]])):
                self._add(sent, command, "confirm", asking=bool(self.asking))
        self._exchange.write(sent)

    def _add(self, sent: list[Command], command: Command, due: int | str, *, asking: bool) -> None:
        if asking:
            sent.append(("ASKING",))
            self._due.append("asking")
        sent.append(command)
        self._due.append(due)

    def read(self, replies: list[Any]) -> None:
        """Read all outstanding replies into `replies`."""
        for due, reply in zip(self._due, self._exchange.read(), strict=True):
            if isinstance(due, int):
                replies[due] = reply
            elif due == "confirm":
                self.confirmed.append(reply)

    def release(self) -> None:
        """Give the connection back; it is closed before, if replies are outstanding."""
        self._exchange.release()

    def redirected(self, replies: Sequence[Any]) -> bool:
        """Whether the node has redirected all of the commands."""
        return all(isinstance(replies[item], exceptions.AskError) for item in self.items)


class _Pools(redis.ConnectionPool):
    """Stands for the pools of all nodes, in places that expect the pool of one server. Has no connections of its
    own."""

    def __init__(self, client: ClusterClient, connections: Mapping[str, Any]) -> None:
        super().__init__(**connections)
        self._client = client

    def disconnect(self, inuse_connections: bool = True) -> None:  # noqa: ARG002 - as redis-py's; others' are theirs to end
        self._client.disconnect_idle()


def _without_signals(ask: Callable[[], Any]) -> Any:  # noqa: ANN401 - of either kind
    """Call it in a thread in which no signal's handler runs. While redis-py asks a node for the list of nodes, it takes
    any exception for that node's silence and asks the next node: a job's time limit would be lost."""
    if threading.current_thread() is not threading.main_thread():
        return ask()
    threads = ThreadPoolExecutor(1, thread_name_prefix="holdfast-nodes")
    try:
        return threads.submit(ask).result()
    finally:
        threads.shutdown(wait=False)


def _not_listed(error: Exception, where: object) -> StoreError:
    """The error if no node has listed the nodes. redis-py has the last node's reason as a cause of its own error."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    replied = [each for each in chain if isinstance(each, _REPLIED)]
    other = [
        each for each in chain if isinstance(each, Exception) and not isinstance(each, exceptions.RedisClusterException)
    ]
    found = store_error((replied or other or [error])[0], where)
    if isinstance(found, StoreRefused) and not isinstance(found, AccessRefused):
        return StoreRefused(
            f"the Redis at {where} does not list its nodes ({replied[0]}): if it is no Redis Cluster, give "
            "the URL as redis:// or rediss://"
        )
    return found
