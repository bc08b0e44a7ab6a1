"""Redis Cluster as a store: its client, and whether all its nodes can hold the promise.

A shard of a namespace is one hash tag, so one slot, so on one master. What touches one shard is as on one server. What
spans shards is one call for each of their masters, at once; no answer from one of them is no answer:

    begin, renew and end of a session: all shards, always. A session lives while every shard has its field
    claim, finish, unclaim, results: the shards of the batch's keys
    acquire, mark, let_go, poll, release: the shards of the batch's partitions
    drop, set_position, groups: one shard, that of the partition or the group
    batch attempts of Spark: one shard, since a namespace with several is refused there
    layout and the store's id: the first shard; in a cluster an id in each, since shards fail apart
    RedisAdmin: show and forget as claim; stats, positions and knows_scope SCAN each master, so that a shard that moves
    meanwhile may be counted twice or missed

A shard that is away pauses all of a namespace. After a call without an answer a session makes no other before all
shards are there (`RedisSession._ask`), and its renewals, which ask all, fail. A record's position, its key and the
session on which both hang are in different shards: which records could go on is not worth knowing for the time of a
failover.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import redis
from redis.cluster import REDIS_ALLOWED_KEYS, ClusterNode, RedisCluster
from redis.connection import parse_url

from holdfast.dedup.redis_cluster_client import ClusterClient
from holdfast.dedup.redis_connect import (
    agree_on_id,
    check_credentials,
    connection_options,
    inspect,
    keeps_keys,
    masked,
)
from holdfast.dedup.redis_connect import place_of as place_of_single
from holdfast.dedup.redis_connect import where_is as where_is_single
from holdfast.dedup.redis_errors import asking
from holdfast.errors import SettingError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.credentials import CredentialProvider

    from holdfast.dedup.redis_cluster_client import Remap
    from holdfast.dedup.redis_connect import Server, Where
    from holdfast.dedup.redis_layout import Layout

#: A URL's scheme -> what redis-py calls it.
_SCHEMES = {"redis+cluster": "redis", "rediss+cluster": "rediss"}
#: An option of the URL that is ours.
_REMAP = "address_remap="
#: Before, its pools have to be told the command for which a connection is taken.
_OLDEST_CLIENT = (5, 3)


def is_cluster(url: str) -> bool:
    """Whether a URL says that a Redis Cluster is there."""
    return url.partition("://")[0] in _SCHEMES


def cluster_client(
    url: str, timeout_s: float, credentials: CredentialProvider | None = None, remap: Remap | None = None
) -> ClusterClient:
    """A client that sends nothing again but what a node has refused. Does not connect yet.

    Args:
        url: redis+cluster://user:password@host:port,host:port: some of its nodes. Behind NAT its option
            address_remap=host:port=host:port,... says the same as `remap`: where there is only a URL to give.
        timeout_s: for a connection, and for each reply.
        credentials: asked for user and password at each new connection, in place of those in the URL.
        remap: what the cluster says of a node's host and port -> where it can be reached.

    Raises:
        SettingError: the URL cannot be read, or has credentials besides those that are given.
    """
    _check_version()
    options = {**connection_options(timeout_s, credentials), "socket_keepalive": True}
    try:
        bare, in_url = _remap(url)
        first, others = _nodes(bare)
        given: dict[str, Any] = parse_url(first)  # type: ignore[no-untyped-call]
    except (ValueError, TypeError):
        # Not chained: the parser's text may quote a part of the password.
        raise SettingError(
            "url",
            masked(url),
            "give it as redis+cluster://user:password@host:port,host:port, with the password percent-encoded; a "
            "cluster has no databases",
        ) from None
    if remap is not None and in_url is not None:
        raise SettingError("address_remap", remap, "leave it out: the URL has one")
    remap = remap or in_url
    # redis-py drops what it does not know here, without a word.
    dropped = sorted({*given} - {*REDIS_ALLOWED_KEYS})
    if dropped:
        raise SettingError(
            "url", masked(url), f"leave out {', '.join(dropped)}: redis-py's RedisCluster does not take it"
        )
    connections = {**options, **given}
    check_credentials(credentials, connections)

    def reach() -> RedisCluster:
        nodes = [ClusterNode(*each) for each in others]  # type: ignore[no-untyped-call]
        return RedisCluster(
            url=first,
            startup_nodes=nodes,
            address_remap=remap,
            # Shards whose nodes are there are asked, whatever became of other slots.
            require_full_coverage=False,
            **options,
        )

    places = [(str(connections.get("host", "localhost")), int(connections.get("port", 6379))), *others]
    where = ", ".join(f"{host}:{port}" for host, port in places)
    return ClusterClient(reach, connections, where, remap, ours=True)


def around(cluster: RedisCluster) -> ClusterClient:
    """A client of the caller's, used for its nodes and connections.

    Raises:
        SettingError: it reads from replicas.
    """
    _check_version()
    if cluster.read_from_replicas or cluster.load_balancing_strategy:
        raise SettingError(
            "client",
            "reads from replicas",
            "they may be behind: leave out read_from_replicas and load_balancing_strategy",
        )
    nodes = cluster.nodes_manager
    where = ", ".join(sorted(nodes.startup_nodes))
    # What is sent here is never sent again, whatever its connections would do with a command of redis-py's own.
    connections = {option: value for option, value in nodes.connection_kwargs.items() if not option.startswith("retry")}
    return ClusterClient(lambda: cluster, connections, where, nodes.address_remap, ours=False)


def where_is(client: redis.Redis) -> Where:
    """Host, port and database, for people; of a cluster the nodes that were given."""
    return client.where if isinstance(client, ClusterClient) else where_is_single(client)


def place_of(client: redis.Redis) -> str:
    """The database by the addresses that the client was given; of a cluster, by some of its nodes."""
    return " ".join(sorted(client.where.split(", "))) if isinstance(client, ClusterClient) else place_of_single(client)


def inspect_cluster(client: ClusterClient, where: Where, layout: Layout, *, wait_for_replica: bool) -> Server:
    """Ask each node what it is.

    Raises:
        StoreUnavailable: no answer from a node with a shard of ours, or no replica of it where one is asked for.
        StoreRefused: one is too old, or one that answers evicts keys.
    """
    client.look()
    with asking(where):
        holders = [client.master_of(key) for key in layout.id_keys]
    found: dict[str, Server] = {}
    for node, at in client.nodes():
        name = str(node.name)
        place = f"{name} in the cluster at {where}"
        try:
            if node.server_type == "primary":
                wait = wait_for_replica and name in holders
                found[name] = inspect(at, place, wait_for_replica=wait, node=True)
            else:  # it takes the place of its master one day
                with asking(place):
                    keeps_keys(at.info(), place)
        except StoreUnavailable:
            if name in holders:
                client.disconnect_idle()  # its place may be another's by now
                raise
    servers = [found[name] for name in sorted(found)]
    texts = {server.text for server in servers}
    told = [f"each: {texts.pop()}"] if len(texts) == 1 else [f"{name}: {found[name].text}" for name in sorted(found)]
    ours = len(set(holders))
    told.append(f"the {layout.shards} shard{'s' * (layout.shards > 1)} of this namespace: on {ours} of them")
    text = f"Redis Cluster with {len(servers)} master{'s' * (len(servers) > 1)}; {'; '.join(told)}"
    return servers[0]._replace(
        version=min(server.version for server in servers),
        replicas=min(server.replicas for server in servers),
        text=text,
    )


def agree_on_ids(client: ClusterClient, where: Where, layout: Layout) -> list[str]:
    """The id of each shard.

    Raises:
        StoreUnavailable: no answer.
    """
    keys = layout.id_keys
    with asking(where), client.pipeline() as pipeline:
        for key in keys:
            pipeline.get(key)
        found = pipeline.execute()
    return [
        agree_on_id(client, where, key) if stored is None else stored.decode()
        for key, stored in zip(keys, found, strict=True)
    ]


def one_id(ids: Sequence[str]) -> str:
    """The store's, of those of its shards: another one where one of them is another."""
    return ids[0] if len(ids) == 1 else hashlib.sha256(" ".join(ids).encode()).hexdigest()[:16]


def _remap(url: str) -> tuple[str, Remap | None]:
    """The URL without its `address_remap`, and what that says. Raises ValueError."""
    head, found, query = url.partition("?")
    options = query.split("&") if found else []
    ours = [each for each in options if each.startswith(_REMAP)]
    if not ours:
        return url, None
    places: dict[tuple[str, int], tuple[str, int]] = {}
    for pair in unquote(ours[-1].removeprefix(_REMAP)).split(","):
        told, reached = (urlsplit(f"//{each}") for each in pair.split("="))
        if not told.hostname or not told.port or not reached.hostname or not reached.port:
            raise ValueError("a host or a port is missing")
        places[told.hostname, told.port] = reached.hostname, reached.port
    others = "&".join(each for each in options if each not in ours)
    return f"{head}?{others}" if others else head, lambda place: places.get(place, place)


def _nodes(url: str) -> tuple[str, list[tuple[str, int]]]:
    """The URL of the first node, and the addresses of the others."""
    parts = urlsplit(url)
    if parts.path.strip("/") not in ("", "0"):
        raise ValueError("a cluster has one database")
    user, at, hosts = parts.netloc.rpartition("@")
    first, *others = hosts.split(",")
    addresses = [urlsplit(f"//{each}") for each in others]
    if not all(each.hostname for each in (urlsplit(f"//{first}"), *addresses)):
        raise ValueError("a host is missing")
    scheme, query = _SCHEMES[parts.scheme], f"?{parts.query}" if parts.query else ""
    return f"{scheme}://{user}{at}{first}{query}", [(str(each.hostname), each.port or 6379) for each in addresses]


def _check_version() -> None:
    if redis.VERSION[:2] < _OLDEST_CLIENT:
        raise SettingError("client", f"redis-py {redis.__version__}", "a Redis Cluster needs redis-py 5.3 or later")
