"""Redis Cluster as a store: which calls concern which of its nodes, and its client by a URL or by a RedisCluster.

A shard of a namespace is one hash tag, therefore one slot, therefore on one master. A call about one shard works as on
a single server. A call about several shards is sent to each of their masters, at the same time; no answer from one of
them counts as no answer:

    begin, renew and end of a session: all shards, always. A session lives while every shard has its field
    claim, finish, unclaim, results: the shards of the batch's keys
    acquire, mark, let_go, poll, release: the shards of the batch's partitions
    drop, set_position, groups: one shard, that of the partition or the group
    batch attempts of Spark: one shard, since a namespace with several is refused there
    layout and the store's id: the first shard; in a cluster an id in each, since shards fail apart
    RedisAdmin: show and forget as claim; stats, positions and knows_scope SCAN each master, so that a shard that moves
    meanwhile may be counted twice or missed

A shard that is down pauses the whole namespace. After a call without an answer a session makes the next one only when
all shards answer (`Asker._send`), and its renewals, which ask all shards, fail. A record's position, its key and the
session that holds both are in different shards; to find out which records could go on is not worth it for the time of a
failover.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import redis
from redis.cluster import REDIS_ALLOWED_KEYS, ClusterNode, RedisCluster
from redis.connection import parse_url

from holdfast.dedup.redis_cluster_client import ClusterClient
from holdfast.dedup.redis_connect import check_credentials, connection_options, masked
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from redis.credentials import CredentialProvider

    from holdfast.dedup.redis_cluster_client import Remap

#: Scheme of a URL -> the scheme that redis-py knows.
_SCHEMES = {"redis+cluster": "redis", "rediss+cluster": "rediss"}
#: An option of the URL that holdfast reads itself.
_REMAP = "address_remap="
#: The version of redis-py from which on `get_connection` of its pools needs no name of a command.
_OLDEST_CLIENT = (5, 3)


def cluster_client(
    url: str, timeout_s: float, credentials: CredentialProvider | None = None, remap: Remap | None = None
) -> ClusterClient:
    """Make a client that sends a command again only if a node has redirected it. Does not connect yet.

    Args:
        url: redis+cluster://user:password@host:port,host:port: some of its nodes. Behind NAT its option
            address_remap=host:port=host:port,... does the same as `remap`, if there is only a URL to give.
        timeout_s: for a connection, and for each reply.
        credentials: asked for user and password at each new connection, in place of those in the URL.
        remap: host and port of a node, as the cluster gives them -> those at which it can be reached.

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
    # RedisCluster drops unknown options silently.
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
            # A slot without a node is no reason to fail: shards on other slots can still be asked.
            require_full_coverage=False,
            **options,
        )

    places = [(str(connections.get("host", "localhost")), int(connections.get("port", 6379))), *others]
    where = ", ".join(f"{host}:{port}" for host, port in places)
    return ClusterClient(reach, connections, where, remap, ours=True)


def around(cluster: RedisCluster) -> ClusterClient:
    """Make a client that uses the nodes and connections of the caller's RedisCluster.

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
    # Without its retry options: commands that are sent from here are never resent.
    connections = {option: value for option, value in nodes.connection_kwargs.items() if not option.startswith("retry")}
    return ClusterClient(lambda: cluster, connections, where, nodes.address_remap, ours=False)


def _remap(url: str) -> tuple[str, Remap | None]:
    """Return the URL without its option `address_remap`, and a function for that option. Raises ValueError."""
    head, found, query = url.partition("?")
    options = query.split("&") if found else []
    ours = [each for each in options if each.startswith(_REMAP)]
    if not ours:
        return url, None
    places: dict[tuple[str, int], tuple[str, int]] = {}
    for pair in unquote(ours[-1].removeprefix(_REMAP)).split(","):
        named, reached = (urlsplit(f"//{each}") for each in pair.split("="))
        if not named.hostname or not named.port or not reached.hostname or not reached.port:
            raise ValueError("a host or a port is missing")
        places[named.hostname, named.port] = reached.hostname, reached.port
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
