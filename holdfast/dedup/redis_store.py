"""RedisClaims: the store of claims in a Redis (6.2 or later), with or without replicas, or in a Redis Cluster."""

from __future__ import annotations

import hashlib
import logging
import math
import weakref
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from redis.cluster import RedisCluster
from redis.exceptions import RedisError
from redis.sentinel import SentinelConnectionPool

from holdfast.dedup.forks import after_fork
from holdfast.dedup.lease import Lease
from holdfast.dedup.redis_client import Client, ServerClient
from holdfast.dedup.redis_connect import check_client, server_client
from holdfast.dedup.redis_errors import once_let_in
from holdfast.dedup.redis_keys import Times
from holdfast.dedup.redis_layout import Layout
from holdfast.dedup.redis_scripts import Scripts
from holdfast.dedup.redis_server import compare_layout
from holdfast.dedup.redis_session import RedisSession
from holdfast.errors import SettingError
from holdfast.runtime import MACHINE
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import redis
    from redis.credentials import CredentialProvider

    from holdfast.dedup.calls.process import Calls
    from holdfast.dedup.redis_cluster_client import Remap
    from holdfast.runtime import Runtime

log = logging.getLogger("holdfast.dedup")

_DAY_S = 86_400.0
_WEEK_S = 7 * _DAY_S
#: The schemes of URLs that name sentinels, or nodes of a cluster.
_SENTINELS, _CLUSTERS = ("redis+sentinel", "rediss+sentinel"), ("redis+cluster", "rediss+cluster")


def client_of(
    url: str,
    timeout_s: float,
    *,
    credentials: CredentialProvider | None = None,
    remap: Remap | None = None,
    now: Callable[[], float] = SYSTEM_CLOCK.now,
) -> Client:
    """Make a client of the kind of Redis that the URL names. Does not connect yet. Arguments as of
    `RedisClaims.from_url`.

    Raises:
        SettingError: the URL cannot be read, or contradicts the other arguments.
    """
    scheme = url.partition("://")[0]
    if scheme in _CLUSTERS:
        from holdfast.dedup.redis_cluster import cluster_client  # noqa: PLC0415 - most stores are one server

        return cluster_client(url, timeout_s, credentials, remap)
    if remap is not None:
        raise SettingError("address_remap", remap, "leave it out: it is for a Redis Cluster")
    if scheme in _SENTINELS:
        from holdfast.dedup.redis_sentinel import sentinel_client  # noqa: PLC0415 - as above

        return sentinel_client(url, timeout_s, credentials, now)
    return server_client(url, timeout_s, credentials)


def client_around(client: redis.Redis | RedisCluster) -> Client:
    """Make a client that uses the connections of the caller's.

    Raises:
        SettingError: that client would break the protocol.
    """
    if isinstance(client, RedisCluster):
        from holdfast.dedup.redis_cluster import around  # noqa: PLC0415 - as above

        client = around(client)
    check_client(client)
    if isinstance(client, Client):
        return client
    if isinstance(client.connection_pool, SentinelConnectionPool):
        from holdfast.dedup.redis_sentinel import SentinelClient  # noqa: PLC0415 - as above

        return SentinelClient.around(client)
    return ServerClient.around(client)


class Parts(NamedTuple):
    """The parts of a store, for tools."""

    client: Client
    scripts: Scripts
    layout: Layout
    times: Times
    where: object  #: for error texts
    let_in: bool  #: a session has begun here before: from now on refused credentials count as an outage


class RedisClaims:
    """Claims, positions and sessions in a Redis, or a Redis Cluster. One object a process; any thread may call.

    Args:
        client: a client of yours. Its connections are used as they are and not closed. It must not retry, and has to
            have a `socket_timeout`. If handlers of signals raise (time limits of jobs), give one that nothing else
            uses: redis-py leaves the reply of an interrupted call for the next one to read. Forked children use it too;
            redis-py makes its connections anew there, but not the locks that a thread may hold at the fork, whereas a
            store `from_url` makes all anew. A RedisCluster lends its nodes and their connections; its retries are not
            used, so it may have them.
        namespace: separates applications in one Redis. All members of a group name the same.
        lease_s: a session that is not renewed for so long is dead. None: the lease given to `begin`. With a shorter
            lease others take over sooner after a crash, and a shorter pause of this process or of Redis costs the
            session.
        window_s: how long a finished key is remembered: longer than the longest downtime plus the replay horizon.
        positions_ttl_s: how long the position of a partition is kept when no member reads that partition any more.
        shards: over how many hash tags the keys are spread. A single server gains nothing from several. In a Redis
            Cluster each is on one master: take some more than there are masters, at most a few dozen, since each
            renewal asks all. All members of a group name the same number.
        hash_keys: store a 16-byte digest instead of the key's text. All members of a group name the same.
        keys_expected: with `hash_keys`: roughly how many keys are done at a time. Up to five times as many cost no more
            each; beyond, calls take longer, and from twenty times on a key costs as much memory as a plain one, as it
            does if there are far fewer. All members of a group name the same.
        durability: "wait1" = claims, marks and all other changes are answered only when a replica has them as well.
        runtime: this process' machine; its clock judges leases.

    Raises:
        SettingError: a setting cannot work.
    """

    def __init__(
        self,
        client: redis.Redis | RedisCluster,
        *,
        namespace: str = "holdfast",
        lease_s: float | None = None,
        window_s: float = _WEEK_S,
        positions_ttl_s: float = 90 * _DAY_S,
        shards: int = 1,
        hash_keys: bool = False,
        keys_expected: int = 1_000_000,
        durability: Literal["none", "wait1"] = "none",
        runtime: Runtime = MACHINE,
    ) -> None:
        if not namespace or any(character in "{}" or character.isspace() for character in namespace):
            raise SettingError("namespace", namespace, "give a name without braces and spaces")
        _check_whole("shards", shards, 1024)
        _check_whole("keys_expected", keys_expected, 10**12)
        if durability not in ("none", "wait1"):
            raise SettingError("durability", durability, "give 'none' or 'wait1'")
        self._client = client_around(client)
        self._namespace = namespace
        self._lease_s = None if lease_s is None else _seconds("lease_s", lease_s)
        self._times = Times(
            window=_ms(_seconds("window_s", window_s)),
            # A claim holds as long as its session lives, however long a handler runs; this only removes what crashes
            # left.
            garbage=_ms(max(window_s, _WEEK_S)),
            position=_ms(_seconds("positions_ttl_s", positions_ttl_s)),
        )
        self._wait = durability == "wait1"
        self._layout = Layout(namespace, shards, hash_keys=hash_keys, keys_expected=keys_expected)
        self._runtime = runtime
        self._where = self._client.where
        self._scripts: Scripts | None = None
        self._promises = ""
        #: The ids in the store: one of each shard in a Redis Cluster, else that of the first shard.
        self._ids: list[str] = []
        #: A session has begun: the server has accepted user and permissions.
        self._let_in = False
        self._connecting = runtime.lock()
        self._leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        #: Makes a client like the first one, for a forked child; None: the client is the caller's.
        self._make_client: Callable[[], Client] | None = None
        #: Where it is, if a URL says all of it. It may have a password.
        self._url: str | None = None
        #: Made at the first use.
        self._calls: list[Calls] = []
        after_fork(self, RedisClaims._forked)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        timeout_s: float = 2.0,
        credential_provider: CredentialProvider | None = None,
        address_remap: Remap | None = None,
        namespace: str = "holdfast",
        lease_s: float | None = None,
        window_s: float = _WEEK_S,
        positions_ttl_s: float = 90 * _DAY_S,
        shards: int = 1,
        hash_keys: bool = False,
        keys_expected: int = 1_000_000,
        durability: Literal["none", "wait1"] = "none",
        runtime: Runtime = MACHINE,
    ) -> RedisClaims:
        """Make the store at a URL. Does not connect yet.

        Args:
            url: as redis-py reads it: redis://user:password@host:port/db, rediss:// for TLS, unix://. Or all sentinels
                of a master: redis+sentinel://user:password@host:port,host:port/name/db. User and password are the
                master's; those of the sentinels are options (sentinel_username=...&sentinel_password=...).
                rediss+sentinel:// is TLS to both.
                Or some nodes of a Redis Cluster: redis+cluster://user:password@host:port,host:port, rediss+cluster://.
            timeout_s: for a connection, and for each reply.
            credential_provider: of redis-py, in place of user and password in the URL: asked at each new connection, so
                that a password may change while the process runs.
            address_remap: for a Redis Cluster behind NAT: takes host and port of a node as the cluster gives them, and
                returns those at which it can be reached. Or in the URL: ?address_remap=10.0.0.1:6379=nat:7001,...
            namespace: this and all others as in the class.
            lease_s: as in the class.
            window_s: as in the class.
            positions_ttl_s: as in the class.
            shards: as in the class.
            hash_keys: as in the class.
            keys_expected: as in the class.
            durability: as in the class.
            runtime: as in the class.

        Raises:
            SettingError: a setting cannot work. The URL's password is not in its text.
        """
        timeout_s = _seconds("timeout_s", timeout_s)
        make_client = partial(
            client_of, url, timeout_s, credentials=credential_provider, remap=address_remap, now=runtime.now
        )
        store = cls(
            make_client(),
            namespace=namespace,
            lease_s=lease_s,
            window_s=window_s,
            positions_ttl_s=positions_ttl_s,
            shards=shards,
            hash_keys=hash_keys,
            keys_expected=keys_expected,
            durability=durability,
            runtime=runtime,
        )
        store._make_client = make_client
        if credential_provider is None and address_remap is None:
            store._url = url
        return store

    def connect(self) -> None:
        """Reach the server, check that it can hold the promise, and log what it promises. Idempotent.

        Raises:
            StoreUnavailable: no answer, a replica, or still loading. Ask again.
            StoreRefused: credentials, version, eviction policy, or another layout.
        """
        with once_let_in(before=self._let_in):
            self._connected()

    def begin(self, lease_s: float = 10.0) -> RedisSession:
        """Begin a session, and renew it by a thread of its own until it ends or is lost.

        Args:
            lease_s: at most; the store's own setting may be shorter.

        Raises:
            StoreUnavailable: no answer, or the store refuses credentials that it accepted before. Ask again: if a
                session has begun all the same, it runs out with its lease.
            StoreRefused: as `connect`.
        """
        lease_s = _seconds("lease_s", lease_s)
        # Inspect the server each time: sessions begin at starts and after outages. By then the same address may lead to
        # another server, one that evicts keys, or one whose namespace has another layout.
        with once_let_in(before=self._let_in):
            session = self._begun(self._inspected(), lease_s)
        self._let_in = True
        return session

    def _begun(self, scripts: Scripts, lease_s: float) -> RedisSession:
        lease = Lease(
            self._runtime.token(8),
            lease_s if self._lease_s is None else min(lease_s, self._lease_s),
            self._runtime,
            sent_at=self._runtime.now(),
        )
        session = RedisSession(scripts, self._layout, lease, self._runtime, self._times)
        session.begin()
        lease.start(session.renew)
        self._leases.add(lease)
        return session

    @property
    def calls(self) -> Calls:
        """The functions that are `idempotent` at this store, and their session."""
        from holdfast.dedup.calls.process import Calls  # noqa: PLC0415 - an app does without

        if not self._calls:
            self._calls.append(Calls(self, self._lease_s, (self._runtime, self._client.database, self._namespace)))
        return self._calls[0]  # where two threads have made one at the same time, both use the first

    @property
    def store_id(self) -> str:
        """The id that is kept beside the data: another id means that the data is lost. As the last `connect` or `begin`
        has found it."""
        return _one_id(self._ids) if self._ids else ""

    @property
    def lease_s(self) -> float | None:
        """The longest lease of a session; None = no limit of the store's."""
        return self._lease_s

    def look(self) -> str:
        """Ask the server whether it can hold the promise. Writes nothing there. Returns: a text with what it promises.

        Raises:
            StoreUnavailable, StoreRefused: as `connect`.
        """
        server = self._client.inspect(self._layout, wait_for_replica=self._wait)
        compare_layout(self._client, self._where, self._layout)
        return f"{self._where}: {server.text}"

    def parts(self) -> Parts:
        """The store's parts, connected, for tools of this package.

        Raises:
            StoreUnavailable, StoreRefused: as `connect`.
        """
        with once_let_in(before=self._let_in):
            scripts = self._connected()
        return Parts(self._client, scripts, self._layout, self._times, self._where, self._let_in)

    def close(self) -> None:
        """Give the connections back. Sessions that have not ended run out with their lease. Does not raise."""
        for calls in self._calls:
            calls.close()
        for lease in sorted(self._leases, key=_session_id):  # the same order each time, wherever they lie in memory
            lease.stop()
        if self._make_client is not None:
            try:
                self._client.close_all()
            except RedisError as error:
                log.warning("the connections to the Redis at %s were not closed: %s", self._where, error)

    def _forked(self) -> None:
        # In a child: another thread may have held the lock, and the pool's; the sessions are the parent's.
        self._connecting = self._runtime.lock()
        self._leases = weakref.WeakSet()
        self._scripts = None
        if self._make_client is not None:
            self._client = self._make_client()

    def _connected(self) -> Scripts:
        return self._scripts or self._inspected()

    def _inspected(self) -> Scripts:
        with self._connecting:
            server = self._client.inspect(self._layout, wait_for_replica=self._wait)
            self._see(self._client.agree(self._layout))
            if self._scripts is None or server.text != self._promises:
                self._promises = server.text
                log.info("claims in namespace %s at %s: %s", self._namespace, self._where, server.text)
            timeout_s = float(self._client.get_connection_kwargs()["socket_timeout"])
            self._scripts = Scripts(
                self._client,
                flags=server.version >= (7, 0),
                hash_keys=self._layout.hash_keys,
                wait_key=self._layout.wait_key if self._wait else None,
                # Shorter than the socket's, so that the answer "not yet" arrives.
                wait_ms=max(1, int(timeout_s * 1000 / 2)),
            )
            return self._scripts

    def _see(self, ids: list[str]) -> None:
        others = [shard for shard, (before, now) in enumerate(zip(self._ids, ids, strict=False)) if before != now]
        if others:
            log.error(
                "Redis has lost its data: %snamespace %s at %s is not the one that this process was connected to "
                "before (emptied, restarted without its data, or another server). Positions begin again at the "
                "committed offsets, and keys that were done run again",
                "" if len(others) == len(ids) else f"shard {', '.join(map(str, others))} of ",
                self._namespace,
                self._where,
            )
        self._ids = ids

    def __repr__(self) -> str:
        return f"RedisClaims({self._where}, namespace={self._namespace!r}, {self._layout.description})"


def _one_id(ids: Sequence[str]) -> str:
    """The store's id, made from the ids of its shards: it changes if one of these changes."""
    return ids[0] if len(ids) == 1 else hashlib.sha256(" ".join(ids).encode()).hexdigest()[:16]


def _session_id(lease: Lease) -> str:
    return lease.session_id


def _check_whole(field: str, value: object, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise SettingError(field, value, f"give a whole number from 1 to {most}")


def _seconds(field: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0.001:
        raise SettingError(field, value, "give a number of seconds, at least 0.001")
    return float(value)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
