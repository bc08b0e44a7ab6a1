"""Reaching a Redis: makes a client with suitable settings, and checks whether the server can hold the promise."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from holdfast.dedup.redis_client import ServerClient, greet
from holdfast.dedup.redis_errors import asking
from holdfast.dedup.redis_sentinel import SCHEMES, MasterAt, sentinel_client
from holdfast.errors import SettingError, StoreError, StoreRefused, StoreUnavailable
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redis.credentials import CredentialProvider

    from holdfast.dedup.redis_layout import Layout

log = logging.getLogger("holdfast.dedup")

_OLDEST = (6, 2)
#: A text that was just written is read back this often: a failover, or FLUSHALL, may come in between.
_READS = 4
#: Connections of a pool: no limit.
_CONNECTIONS = 2**31
_URL = (
    "give it as redis://user:password@host:port/db, with the password percent-encoded, or unix:///a.sock?db=0, or "
    "redis+sentinel://host:port,host:port/name/db"
)
_SENTINELS_URL = (
    "give it as redis+sentinel://user:password@host:port,host:port/name/db, with the password percent-encoded and the "
    "name of the master as the sentinels know it"
)


#: A server, for texts. `MasterAt` reads the address of the current master each time.
Where: TypeAlias = str | MasterAt


class Server(NamedTuple):
    """The server as INFO describes it."""

    version: tuple[int, int]
    replicas: int
    text: str  #: for people: version, persistence, replicas, eviction and what they mean


def masked(url: str) -> str:
    """The URL without credentials and without its query, which may hold some too."""
    scheme, found, rest = url.partition("://")
    rest = rest if found else scheme
    return (f"{scheme}://" if found else "") + rest.rpartition("@")[2].partition("?")[0]


def client_of(
    url: str,
    timeout_s: float,
    credentials: CredentialProvider | None = None,
    now: Callable[[], float] = SYSTEM_CLOCK.now,
) -> ServerClient:
    """A client that never resends and never waits longer than `timeout_s` for a connection or a reply.

    Args:
        url: where the server is.
        timeout_s: for a connection, and for each reply.
        credentials: asked for user and password at each new connection, in place of those in the URL.
        now: the clock by which a silent sentinel is left out for a while.

    Raises:
        SettingError: the URL cannot be read, or has credentials besides those that are given.
    """
    options = connection_options(timeout_s, credentials)
    # A Unix socket has no remote peer that could vanish unnoticed.
    if not url.startswith("unix://"):
        options["socket_keepalive"] = True
    by_sentinels = url.startswith(SCHEMES)
    try:
        client = (
            sentinel_client(url, options, now)
            if by_sentinels
            else cast("ServerClient", ServerClient.from_url(url, **options))
        )
    except (ValueError, TypeError):
        # Not chained: the parser's text may quote a part of the password.
        raise SettingError("url", masked(url), _SENTINELS_URL if by_sentinels else _URL) from None
    check_credentials(credentials, client.get_connection_kwargs())
    pool = client.connection_pool
    try:
        pool.connection_class(**pool.connection_kwargs)  # only to check the options: it does not connect yet
    except TypeError as error:  # redis-py would accept the option here, and fail at each connection
        raise SettingError("url", masked(url), f"leave out the option that redis-py does not know ({error})") from None
    return client


def connection_options(timeout_s: float, credentials: CredentialProvider | None) -> dict[str, Any]:
    """The options of each connection, whatever server it goes to."""
    return {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "credential_provider": credentials,
        # A thread takes a connection for the time of one call, so the number of threads is the limit. redis-py 8 would
        # stop at 100, with an error for the next thread.
        "max_connections": _CONNECTIONS,
        # A resent call carries the same call generation, so a late copy of it would pass the barrier.
        "retry": Retry(NoBackoff(), 0),
        # RESP 2: one reply for each request; with RESP 3 a server may push messages into a connection.
        "protocol": 2,
        "client_name": "holdfast",
        "redis_connect_func": greet,
    }


def check_credentials(credentials: CredentialProvider | None, connection: Mapping[str, Any]) -> None:
    """Raises SettingError: the connection has credentials besides those that are given."""
    if credentials is not None and (connection.get("username") or connection.get("password")):
        # Show its class only: the text of a dataclass has its fields, and so the password.
        raise SettingError("credential_provider", type(credentials), "leave user and password out of the URL beside it")


def check_client(client: redis.Redis) -> None:
    """Refuse a client of the caller's that would break the protocol.

    Raises:
        SettingError: it resends, waits for ever, decodes replies, has a single connection, asks replicas, or is no
            plain `redis.Redis`.
    """
    if not isinstance(client, redis.Redis):
        raise SettingError("client", type(client).__name__, "give a redis.Redis; Redis Cluster and asyncio do not work")
    kwargs = client.get_connection_kwargs()
    retry = kwargs.get("retry")
    # Without a `retry`, redis-py's connections make one from either of these options.
    unsaid = retry is None and (kwargs.get("retry_on_timeout") or kwargs.get("retry_on_error"))
    if unsaid or (retry is not None and retry._retries):  # noqa: SLF001 - get_retries() came with redis-py 6
        raise SettingError(
            "client",
            "with retries",
            "a resent request may be applied twice, late: build it with retry=Retry(NoBackoff(), 0), or use from_url()",
        )
    if not kwargs.get("socket_timeout"):
        raise SettingError("client", "without socket_timeout", "a call could wait for ever: give socket_timeout=2.0")
    if kwargs.get("decode_responses"):
        raise SettingError("client", "with decode_responses", "the scripts' replies are bytes: leave it out")
    if client.connection is not None:
        raise SettingError("client", "with single_connection_client", "several threads use the client: leave it out")
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool) and not pool.is_master:
        raise SettingError("client", "of replicas", "they take no writes: use master_for() of redis-py's Sentinel")


def where_is(client: redis.Redis) -> Where:
    """Host, port and database, for texts; for a client of sentinels the master's name and its current address."""
    kwargs, pool = client.get_connection_kwargs(), client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        return MasterAt(pool, kwargs.get("db", 0))
    place = kwargs.get("path") or f"{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}"
    return f"{place}/{kwargs.get('db', 0)}"


#: Other spellings of localhost.
_HERE = {"127.0.0.1": "localhost", "::1": "localhost"}


def place_of(client: redis.Redis) -> str:
    """A name of the database, from the address that the client was given: the same after a failover. A server with two
    addresses has two names."""
    kwargs, pool = client.get_connection_kwargs(), client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        hosts = [each.get_connection_kwargs() for each in pool.sentinel_manager.sentinels]
        servers = " ".join(sorted(f"{_host(each)}:{each.get('port')}" for each in hosts))
        return f"{pool.service_name} {servers}/{kwargs.get('db', 0)}"
    address = kwargs.get("path") or f"{_host(kwargs)}:{kwargs.get('port', 6379)}"
    return f"{address}/{kwargs.get('db', 0)}"


def _host(kwargs: Mapping[str, Any]) -> str:
    host = str(kwargs.get("host", "localhost")).lower()
    return _HERE.get(host, host)


def inspect(client: redis.Redis, where: Where, *, wait_for_replica: bool, node: bool = False) -> Server:
    """Read INFO of the server, and check whether it can hold the promise.

    Args:
        client: of the server.
        where: for texts.
        wait_for_replica: whether the server has to have a replica.
        node: True = the server has to be a node of a Redis Cluster; False = it must not be one.

    Raises:
        StoreUnavailable: no answer, it is a replica, or it has no replica though one is asked for.
        StoreRefused: too old, a cluster, or it evicts keys.
    """
    with asking(where):
        info: dict[str, Any] = client.info()
    major, minor = (int(part) for part in str(info.get("redis_version", "0.0")).split(".")[:2])
    if (major, minor) < _OLDEST:
        raise StoreRefused(f"the Redis at {where} is version {major}.{minor}: 6.2 or later is needed")
    if int(info.get("cluster_enabled", 0)) and not node:
        raise StoreRefused(
            f"the Redis at {where} is part of a Redis Cluster: give its URL as redis+cluster:// or rediss+cluster://"
        )
    policy = keeps_keys(info, where)
    if info.get("role") == "slave":
        client.connection_pool.disconnect(inuse_connections=False)  # the address may stand for another server by now
        raise StoreUnavailable(f"the Redis at {where} is a replica now and takes no writes: use its primary")
    replicas = int(info.get("connected_slaves", 0))
    if wait_for_replica and not replicas:
        raise StoreUnavailable(f"the Redis at {where} has no replica now, and durability='wait1' asks for one")
    persistence, meaning = _persistence(client, info)
    return Server(
        version=(major, minor),
        replicas=replicas,
        text=f"{_product(info)}; persistence: {persistence}; replicas: {replicas}; "
        f"eviction: {'none' if policy == 'noeviction' else f'none now (no maxmemory; the policy would be {policy})'}; "
        f"{meaning}; {_failover(replicas, wait_for_replica=wait_for_replica)}{_cut_off(info, replicas)}",
    )


def _product(info: dict[str, Any]) -> str:
    # Valkey also reports the version of the Redis that it is compatible with; `inspect` checks that one.
    valkey = info.get("valkey_version")
    return f"Valkey {valkey}" if valkey else f"Redis {info.get('redis_version')}"


def keeps_keys(info: dict[str, Any], where: Where) -> str:
    """Check that the server does not evict keys. Returns: its eviction policy.

    Raises:
        StoreRefused: the server evicts keys.
    """
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if int(info.get("maxmemory", 0)) and policy != "noeviction":
        raise StoreRefused(
            f"the Redis at {where} forgets keys when memory is full (maxmemory-policy {policy}), and a forgotten key "
            "is work done twice: CONFIG SET maxmemory-policy noeviction, or use another Redis"
        )
    return policy


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


def _cut_off(info: dict[str, Any], replicas: int) -> str:
    # INFO has this field only if min-replicas-to-write is set.
    if not replicas or "min_slaves_good_slaves" in info:
        return ""
    return "; cut off from them, it would go on taking work that is forgotten later (min-replicas-to-write 0)"


def _config(client: redis.Redis, name: str) -> str | None:
    """A setting of the server, or None where CONFIG is not allowed: managed services refuse it."""
    try:
        with asking("it"):
            value = dict(client.config_get(name)).get(name)
    except StoreError:
        return None
    return None if value is None else str(value)


def agree_on_layout(client: redis.Redis, where: Where, layout: Layout) -> str:
    """Write down the settings on which all members have to agree, or compare them with those in the store.

    Returns:
        The store's id, for `ClaimStore.store_id`.

    Raises:
        StoreUnavailable: no answer.
        StoreRefused: this namespace is laid out in another way.
    """
    _compare(_first_word(client, where, layout.layout_key, layout.description), where, layout)
    return agree_on_id(client, where, layout.id_key)


def agree_on_id(client: redis.Redis, where: Where, key: bytes) -> str:
    """Read the id kept under this key; if there is none, make one.

    Raises:
        StoreUnavailable: no answer.
    """
    return _first_word(client, where, key, secrets.token_hex(8))


def compare_layout(client: redis.Redis, where: Where, layout: Layout) -> None:
    """Compare the settings on which all members have to agree with those in the store, if it has any.

    Raises:
        StoreUnavailable: no answer.
        StoreRefused: this namespace is laid out in another way.
    """
    with asking(where):
        stored = client.get(layout.layout_key)
    if stored is not None:
        _compare(_text(stored), where, layout)


def _compare(found: str, where: Where, layout: Layout) -> None:
    if found != layout.description:
        raise StoreRefused(
            f"the namespace in the Redis at {where} is laid out as '{found}' and this process wants "
            f"'{layout.description}': set shards, hash_keys and keys_expected as the other members do, run their "
            "version of holdfast, or use another namespace"
        )


def _first_word(client: redis.Redis, where: Where, key: bytes, ours: str) -> str:
    """The text under this key: written by the first session, which may be this one.

    Raises:
        StoreUnavailable: no answer; or the text was gone again each time before it could be read.
    """
    for _ in range(_READS):
        with asking(where):
            stored = client.get(key)
            if stored is not None:
                return _text(stored)
            client.set(key, ours, nx=True)
    raise StoreUnavailable(f"the Redis at {where} is emptied again and again: what was just written is not there")


def _text(stored: object) -> str:
    return stored.decode(errors="replace") if isinstance(stored, bytes) else str(stored)
