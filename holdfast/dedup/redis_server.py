"""A Redis server as `RedisClaims` needs it: whether it can hold the promise, and the settings that members agree on."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.dedup.redis_errors import asking
from holdfast.errors import StoreError, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    import redis

    from holdfast.dedup.redis_layout import Layout

_OLDEST = (6, 2)
#: A text that was just written is read back this often: a failover, or FLUSHALL, may come in between.
_READS = 4


class Server(NamedTuple):
    """The server as INFO describes it."""

    version: tuple[int, int]
    replicas: int
    text: str  #: for people: version, persistence, replicas, eviction and what they mean


def inspect(client: redis.Redis, where: object, *, wait_for_replica: bool, node: bool = False) -> Server:
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


def keeps_keys(info: dict[str, Any], where: object) -> str:
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
        fsync = _config(client, "appendfsync") or "unknown"
        lost = {"always": "nothing", "everysec": "up to a second of work"}.get(fsync, "what the system had not written")
        return f"append-only file (appendfsync {fsync})", f"a crash of the server forgets {lost}"
    save = _config(client, "save")
    if save:
        return f"snapshots ({save})", "a crash of the server forgets, and repeats, all work since the last snapshot"
    if save is None:
        return "no append-only file, snapshots unknown", "a crash of the server forgets work, perhaps all of it"
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


def agree_on_layout(client: redis.Redis, where: object, layout: Layout) -> str:
    """Write down the settings on which all members have to agree, or compare them with those in the store.

    Returns:
        The store's id, for `ClaimStore.store_id`.

    Raises:
        StoreUnavailable: no answer.
        StoreRefused: this namespace is laid out in another way.
    """
    _compare(_first_word(client, where, layout.layout_key, layout.description), where, layout)
    return agree_on_id(client, where, layout.id_key)


def agree_on_id(client: redis.Redis, where: object, key: bytes) -> str:
    """Read the id kept under this key; if there is none, make one.

    Raises:
        StoreUnavailable: no answer.
    """
    return _first_word(client, where, key, secrets.token_hex(8))


def compare_layout(client: redis.Redis, where: object, layout: Layout) -> None:
    """Compare the settings on which all members have to agree with those in the store, if it has any.

    Raises:
        StoreUnavailable: no answer.
        StoreRefused: this namespace is laid out in another way.
    """
    with asking(where):
        stored = client.get(layout.layout_key)
    if stored is not None:
        _compare(_text(stored), where, layout)


def _compare(found: str, where: object, layout: Layout) -> None:
    if found != layout.description:
        raise StoreRefused(
            f"the namespace in the Redis at {where} is laid out as '{found}' and this process wants "
            f"'{layout.description}': set shards, hash_keys and keys_expected as the other members do, run their "
            "version of holdfast, or use another namespace"
        )


def _first_word(client: redis.Redis, where: object, key: bytes, ours: str) -> str:
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
