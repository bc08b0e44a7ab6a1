"""Reaching a Redis: the client that is fit for it, and whether the server can hold the promise."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from holdfast.dedup.redis_errors import store_error
from holdfast.errors import SettingError, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from holdfast.dedup.redis_layout import Layout

log = logging.getLogger("holdfast.dedup")

_OLDEST = (6, 2)


class Server(NamedTuple):
    """What INFO says of the server."""

    version: tuple[int, int]
    replicas: int
    text: str  #: for people: version, persistence, replicas, eviction and what they mean


def masked(url: str) -> str:
    """The URL without credentials and without its query, which may hold some too."""
    scheme, found, rest = url.partition("://")
    rest = rest if found else scheme
    return (f"{scheme}://" if found else "") + rest.rpartition("@")[2].partition("?")[0]


def client_of(url: str, timeout_s: float) -> redis.Redis:
    """A client that never resends and never waits longer than `timeout_s` for a connection or a reply.

    Raises:
        SettingError: the URL cannot be read.
    """
    try:
        return redis.Redis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            socket_keepalive=True,
            # A resent call would carry the same call generation, and its late twin would pass the barrier.
            retry=Retry(NoBackoff(), 0),
            # One reply for one request: nothing is pushed into a connection.
            protocol=2,
            client_name="holdfast",
        )
    except (ValueError, TypeError):
        # Not chained: the parser's text may quote a part of the password.
        raise SettingError(
            "url", masked(url), "give it as redis://user:password@host:port/db, with the password percent-encoded"
        ) from None


def check_client(client: redis.Redis) -> None:
    """Refuse a client of the caller's that would break the protocol.

    Raises:
        SettingError: it resends, waits for ever, decodes replies, or is no plain `redis.Redis`.
    """
    if not isinstance(client, redis.Redis):
        raise SettingError("client", type(client).__name__, "give a redis.Redis; Redis Cluster and asyncio do not work")
    kwargs = client.get_connection_kwargs()
    retry = kwargs.get("retry")
    if retry is not None and retry._retries:  # noqa: SLF001 - get_retries() came with redis-py 6
        raise SettingError(
            "client",
            "with retries",
            "a resent request may be applied twice, late: build it with retry=Retry(NoBackoff(), 0), or use from_url()",
        )
    if not kwargs.get("socket_timeout"):
        raise SettingError("client", "without socket_timeout", "a call could wait for ever: give socket_timeout=2.0")
    if kwargs.get("decode_responses"):
        raise SettingError("client", "with decode_responses", "the scripts' replies are bytes: leave it out")


def where_is(client: redis.Redis) -> str:
    """Host, port and database, for people."""
    kwargs = client.get_connection_kwargs()
    place = kwargs.get("path") or f"{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}"
    return f"{place}/{kwargs.get('db', 0)}"


def inspect(client: redis.Redis, where: str, *, wait_for_replica: bool) -> Server:
    """Ask the server what it is.

    Raises:
        StoreUnavailable: no answer, or no replica where one is asked for.
        StoreRefused: too old, a cluster, or it evicts keys.
    """
    try:
        info: dict[str, Any] = client.info()
    except RedisError as error:
        raise store_error(error, where) from error
    major, minor = (int(part) for part in str(info.get("redis_version", "0.0")).split(".")[:2])
    if (major, minor) < _OLDEST:
        raise StoreRefused(f"the Redis at {where} is version {major}.{minor}: 6.2 or later is needed")
    if int(info.get("cluster_enabled", 0)):
        raise StoreRefused(
            f"the Redis at {where} is part of a Redis Cluster: use a single one, with replicas if you like"
        )
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if int(info.get("maxmemory", 0)) and policy != "noeviction":
        raise StoreRefused(
            f"the Redis at {where} forgets keys when memory is full (maxmemory-policy {policy}), and a forgotten key "
            "is work done twice: CONFIG SET maxmemory-policy noeviction, or use another Redis"
        )
    if info.get("role") == "slave":
        client.connection_pool.disconnect()  # the address may stand for another server by now
        raise StoreUnavailable(f"the Redis at {where} is a replica now and takes no writes: use its primary")
    replicas = int(info.get("connected_slaves", 0))
    if wait_for_replica and not replicas:
        raise StoreUnavailable(f"the Redis at {where} has no replica now, and durability='wait1' asks for one")
    persistence, meaning = _persistence(client, info)
    return Server(
        version=(major, minor),
        replicas=replicas,
        text=f"Redis {info.get('redis_version')}; persistence: {persistence}; replicas: {replicas}; "
        f"eviction: {'none' if policy == 'noeviction' else f'none now (no maxmemory; the policy would be {policy})'}; "
        f"{meaning}; {_failover(replicas, wait_for_replica=wait_for_replica)}",
    )


def _persistence(client: redis.Redis, info: dict[str, Any]) -> tuple[str, str]:
    if int(info.get("aof_enabled", 0)):
        fsync = _config(client, "appendfsync") or "not told"
        lost = {"always": "nothing", "everysec": "up to a second of work"}.get(fsync, "what the system had not written")
        return f"append-only file (appendfsync {fsync})", f"a crash of the server forgets {lost}"
    save = _config(client, "save")
    if save:
        return f"snapshots ({save})", "a crash of the server forgets, and repeats, all work since the last snapshot"
    if save is None:
        return "no append-only file, snapshots not told", "a crash of the server forgets work, perhaps all of it"
    return "none", "a restart of the server forgets, and repeats, all work above the committed offsets"


def _failover(replicas: int, *, wait_for_replica: bool) -> str:
    if wait_for_replica:
        return "a failover to the replica that confirmed repeats nothing (wait1)"
    if replicas:
        return "a failover forgets what was not replicated yet (durability='wait1' waits for it)"
    return "no failover"


def _config(client: redis.Redis, name: str) -> str | None:
    """A setting of the server, or None where CONFIG is not allowed: managed services refuse it."""
    try:
        value = dict(client.config_get(name)).get(name)
    except RedisError:
        return None
    return None if value is None else str(value)


def agree_on_layout(client: redis.Redis, where: str, layout: Layout) -> None:
    """Write down what all members have to agree on, or compare with what is written down.

    Raises:
        StoreUnavailable: no answer.
        StoreRefused: this namespace is laid out in another way.
    """
    try:
        stored = client.get(layout.layout_key)
        if stored is None:
            client.set(layout.layout_key, layout.description, nx=True)
            stored = client.get(layout.layout_key)
    except RedisError as error:
        raise store_error(error, where) from error
    found = stored.decode(errors="replace") if isinstance(stored, bytes) else str(stored)
    if found != layout.description:
        raise StoreRefused(
            f"the namespace in the Redis at {where} is laid out as '{found}' and this process wants "
            f"'{layout.description}': set shards, hash_keys and keys_expected as the other members do, run their "
            "version of holdfast, or use another namespace"
        )
