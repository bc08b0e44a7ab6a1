"""Clients of a Redis: of one server by its URL, and what a client of the caller's must be like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from holdfast.dedup.redis_client import ServerClient, greet
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redis.credentials import CredentialProvider

C = TypeVar("C", bound=ServerClient)

#: Connections of a pool: no limit.
_CONNECTIONS = 2**31


def masked(url: str) -> str:
    """The URL without credentials and without its query, which may hold some too."""
    scheme, found, rest = url.partition("://")
    rest = rest if found else scheme
    return (f"{scheme}://" if found else "") + rest.rpartition("@")[2].partition("?")[0]


def server_client(url: str, timeout_s: float, credentials: CredentialProvider | None = None) -> ServerClient:
    """A client that never resends and never waits longer than `timeout_s` for a connection or a reply.

    Args:
        url: redis://, rediss:// for TLS, or unix://.
        timeout_s: for a connection, and for each reply.
        credentials: asked for user and password at each new connection, in place of those in the URL.

    Raises:
        SettingError: the URL cannot be read, or has credentials besides those that are given.
    """
    options = connection_options(timeout_s, credentials)
    # A Unix socket has no remote peer that could vanish unnoticed.
    if not url.startswith("unix://"):
        options["socket_keepalive"] = True
    try:
        client = cast("ServerClient", ServerClient.from_url(url, **options))
    except (ValueError, TypeError):
        # Not chained: the parser's text may quote a part of the password.
        raise SettingError(
            "url",
            masked(url),
            "give it as redis://user:password@host:port/db, with the password percent-encoded, or "
            "unix:///a.sock?db=0, or redis+sentinel://host:port,host:port/name/db",
        ) from None
    return checked(client, url, credentials)


def checked(client: C, url: str, credentials: CredentialProvider | None) -> C:
    """Return the client. Raises SettingError: its URL has credentials besides those that are given, or an option that
    redis-py does not know."""
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
    implied = retry is None and (kwargs.get("retry_on_timeout") or kwargs.get("retry_on_error"))
    if implied or (retry is not None and retry._retries):  # noqa: SLF001 - get_retries() came with redis-py 6
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
