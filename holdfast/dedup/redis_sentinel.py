"""A Redis master that sentinels name: read from a URL, found by the newest of their answers, left when they name
another.

redis-py believes the first sentinel that answers. A sentinel that is cut off together with the old master goes on
naming that master; its clients would get "done" from a server whose data is thrown away as soon as the network heals.
Therefore all sentinels are asked, and the highest configuration epoch decides, as it does among the sentinels
themselves.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool

from holdfast.dedup.redis_client import ServerClient, greet, host_of
from holdfast.dedup.redis_connect import checked, connection_options, masked
from holdfast.dedup.redis_errors import asking, interruption
from holdfast.errors import AccessRefused, SettingError, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import redis
    from redis.credentials import CredentialProvider

log = logging.getLogger("holdfast.dedup")

_PORT = 26379
#: A sentinel that has not answered is left out for this time, as long as others answer. Sentinels are asked at each new
#: connection and each renewal, which would wait for it each time.
_LEFT_OUT_S = 5.0
#: The timeout of a sentinel, as a share of `timeout_s`: a silent one must not make the connection to the master fail.
_SHARE = 1 / 2
#: Prefixes of options that apply to connections to the sentinels too.
_SHARED = ("socket_", "ssl_")


class SentinelUrl(NamedTuple):
    """The parts of a URL."""

    sentinels: list[tuple[str, int]]
    name: str
    options: dict[str, Any]  #: of connections to the master
    sentinel_options: dict[str, Any]  #: of connections to the sentinels

    @classmethod
    def read(cls, url: str) -> SentinelUrl:
        """Read redis+sentinel://user:password@host:port,host:port/name/db?option=value.

        Raises:
            ValueError: it cannot be read; the text may quote the password.
        """
        scheme, _, rest = url.partition("://")
        place, slash, path = rest.partition("/")
        login, at, hosts = place.rpartition("@")
        name, _, more = path.partition("?")[0].partition("/")
        if not slash or not name or (more and not more.isdecimal()):
            raise ValueError("no redis+sentinel://host:port/name/db")
        query = path.partition("?")[2]
        options: dict[str, Any] = parse_url(f"redis://{login}{at}sentinel/{more or 0}?{query}")  # type: ignore[no-untyped-call]
        del options["host"]
        username, password = options.pop("sentinel_username", None), options.pop("sentinel_password", None)
        if scheme.startswith("rediss"):
            options["ssl"] = True
        sentinel_options = {
            option: value for option, value in options.items() if option == "ssl" or option.startswith(_SHARED)
        }
        found = [urlsplit(f"//{host}") for host in hosts.split(",")]
        return cls(
            [(_host(each.hostname), _PORT if each.port is None else each.port) for each in found],
            name,
            options,
            {**sentinel_options, "username": username, "password": password},
        )


def _host(found: str | None) -> str:
    if not found:
        raise ValueError("a sentinel without a host")
    return found


def sentinel_client(
    url: str, timeout_s: float, credentials: CredentialProvider | None, now: Callable[[], float]
) -> SentinelClient:
    """A client of the master that the sentinels name at each new connection.

    Args:
        url: redis+sentinel://, or rediss+sentinel:// for TLS to the master and to the sentinels.
        timeout_s: for a connection to the master, and for each reply.
        credentials: asked for user and password at each new connection, in place of those in the URL.
        now: the clock by which a silent sentinel is left out for a while.

    Raises:
        SettingError: the URL cannot be read, or has credentials besides those that are given.
    """
    try:
        read = SentinelUrl.read(url)
        options = {**connection_options(timeout_s, credentials), "socket_keepalive": True, **read.options}
        silent_s = float(options["socket_timeout"]) * _SHARE
        asked = {
            "socket_timeout": silent_s,
            "socket_connect_timeout": silent_s,
            "socket_keepalive": True,
            # By default redis-py would ask a silent sentinel three times more, with pauses.
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "redis_connect_func": greet,
        }
        sentinels = NewestSentinel(now, read.sentinels, {**asked, **read.sentinel_options})
        client: SentinelClient = sentinels.master_for(read.name, SentinelClient, **options)  # type: ignore[no-untyped-call]
    except (ValueError, TypeError):
        # Not chained: the parser's text may quote a part of the password.
        raise SettingError(
            "url",
            masked(url),
            "give it as redis+sentinel://user:password@host:port,host:port/name/db, with the password percent-encoded "
            "and the name of the master as the sentinels know it",
        ) from None
    return checked(client, url, credentials)


class SentinelClient(ServerClient):
    """A client of the master that sentinels name."""

    @property
    def _pool(self) -> SentinelConnectionPool:
        return cast("SentinelConnectionPool", self.connection_pool)

    @property
    def where(self) -> object:
        """The name of the master and its current address, for texts."""
        return MasterAt(self._pool, self.get_connection_kwargs().get("db", 0))

    @property
    def database(self) -> str:
        """See `Client`."""
        pool = self._pool
        hosts = [each.get_connection_kwargs() for each in pool.sentinel_manager.sentinels]
        servers = " ".join(sorted(f"{host_of(each)}:{each.get('port')}" for each in hosts))
        return f"{pool.service_name} {servers}/{self.get_connection_kwargs().get('db', 0)}"

    def follow(self) -> None:
        """See `Client`. The master may still answer: if it is cut off, it does not know that it was replaced."""
        with asking(self.where):
            _follow(self._pool)

    def close_idle(self) -> None:
        """See `ServerClient`; those to the sentinels, too."""
        super().close_idle()
        for each in self._pool.sentinel_manager.sentinels:
            each.connection_pool.disconnect(inuse_connections=False)

    def close_all(self) -> None:
        """See `Client`."""
        self.close()
        for each in self._pool.sentinel_manager.sentinels:
            each.close()


class NewestSentinel(Sentinel):
    """Believes the newest configuration that any sentinel names. Any thread."""

    def __init__(self, now: Callable[[], float], sentinels: Sequence[tuple[str, int]], options: dict[str, Any]) -> None:
        super().__init__([], sentinel_kwargs=options)  # type: ignore[no-untyped-call]
        self.sentinels = [ServerClient(host=host, port=port, **options) for host, port in sentinels]
        self._now = now
        self._left_out: dict[redis.Redis, float] = {}
        self._named: tuple[str, int] | None = None

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """The master's address. redis-py calls this at each new connection.

        Raises:
            MasterNotFoundError: no sentinel answers, or most say that the master is down: they are about to name
            another. StoreRefused: the sentinels know no such master, or refuse the credentials.
        """
        found = self.newest(service_name)
        if found is None:
            raise MasterNotFoundError(f"no sentinel of {service_name!r} answers")
        if found.down:
            raise MasterNotFoundError(f"the sentinels of {service_name!r} say that {found.place} is down")
        if self._named not in (None, found.address):
            log.warning("the sentinels of %r name another master: %s", service_name, found.place)
        self._named = found.address
        return found.address

    def newest(self, service_name: str) -> Named | None:
        """The newest answer of the sentinels. Sentinels that were silent a moment ago are asked only if no other
        answers. None = no sentinel answers.

        Raises:
            StoreRefused: as `discover_master`.
        """
        now = self._now()
        asked = [each for each in self.sentinels if self._left_out.get(each, now) <= now]
        others = [each for each in self.sentinels if each not in asked]
        return newest(asked, service_name, self._silent) or newest(others, service_name, self._silent)

    def _silent(self, sentinel: redis.Redis) -> None:
        self._left_out[sentinel] = self._now() + _LEFT_OUT_S


class Named(NamedTuple):
    """A master as its sentinels see it."""

    address: tuple[str, int]
    epoch: int
    down: bool  #: most of the sentinels with the newest answer say that it is down

    @property
    def place(self) -> str:
        """Host and port, for texts."""
        return f"{self.address[0]}:{self.address[1]}"


def newest(
    sentinels: Sequence[redis.Redis], name: str, silent: Callable[[redis.Redis], None] = lambda _: None
) -> Named | None:
    """The newest answer of the sentinels; None = no sentinel answers.

    Args:
        sentinels: a client of each.
        name: of the master.
        silent: called with each that does not answer.

    Raises:
        StoreRefused: no sentinel knows such a master.
        AccessRefused: each sentinel that answers refuses the credentials.
    """
    answers: list[Named] = []
    refused: list[RedisError] = []
    handled = sys.exc_info()[1]
    for each in sentinels:
        try:
            answers.append(_named(each.sentinel_master(name)))
        except (AuthenticationError, ResponseError) as error:
            refused.append(error)
        except (RedisError, OSError) as error:
            by = interruption(error, handled)
            if by is not None:
                raise by  # noqa: B904 - redis-py's error is not its cause
            silent(each)
    if answers:
        epoch = max(each.epoch for each in answers)
        among = [each for each in answers if each.epoch == epoch]
        return among[0]._replace(down=2 * sum(each.down for each in among) > len(among))
    if not refused:
        return None
    text = " ".join(str(refused[0]).split())[:200]
    where = ", ".join(_address(each) for each in sentinels)
    if "No such master" in text:
        raise StoreRefused(f"the sentinels {where} know no master {name!r}: check the name in the URL")
    raise AccessRefused(
        f"the sentinels {where} refuse a question ({text}): check sentinel_username and sentinel_password, "
        "and that the user may run SENTINEL MASTER"
    ) from refused[0]


def _named(state: Any) -> Named:  # noqa: ANN401 - redis-py types it as of clients that return "OK", too
    down = {"s_down", "o_down"} & set(state["flags"] if isinstance(state["flags"], set) else state["flags"].split(","))
    return Named((str(state["ip"]), int(state["port"])), int(state["config-epoch"]), bool(down))


def _address(sentinel: redis.Redis) -> str:
    kwargs = sentinel.get_connection_kwargs()
    return f"{kwargs.get('host')}:{kwargs.get('port')}"


class MasterAt:
    """The current place of a master, for texts: its address is read each time."""

    def __init__(self, pool: SentinelConnectionPool, db: int) -> None:
        self._pool = pool
        self._db = db

    def __str__(self) -> str:
        sentinels = ", ".join(_address(each) for each in self._pool.sentinel_manager.sentinels)
        address = self._pool.master_address
        now = f"now {address[0]}:{address[1]}, " if address else ""
        return f"{self._pool.service_name}/{self._db} ({now}by the sentinels {sentinels})"


def _follow(pool: SentinelConnectionPool) -> None:
    if pool.master_address is None:
        return
    believed = pool.master_address
    manager, name = pool.sentinel_manager, pool.service_name
    try:
        found = manager.newest(name) if isinstance(manager, NewestSentinel) else newest(manager.sentinels, name)
    except StoreRefused as error:
        log.warning("it is not known whether %s:%s is still the master of %r: %s", *believed, name, error)
        return  # stay connected, as if no sentinel answered
    if found is None or found.address == believed:
        return
    try:
        # This also closes idle connections to the old master; the pool closes the others when they are given back.
        pool.get_master_address()  # type: ignore[no-untyped-call]
    except MasterNotFoundError as error:
        raise StoreUnavailable(f"the sentinels of {pool.service_name} have no master now: {error}") from error
    if pool.master_address == believed:
        # redis-py's own Sentinel has asked a sentinel that is behind.
        pool.disconnect(inuse_connections=False)
        raise StoreUnavailable(
            f"the sentinels name {found.place} as the master of {pool.service_name} by now, and the one asked first "
            f"still {believed[0]}:{believed[1]}: that one is not believed"
        )
