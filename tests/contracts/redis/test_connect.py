"""What a Redis must be, and what is said when it is not."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import ssl
import threading
import traceback
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from holdfast.dedup.claims import Claim, ClaimKey, Token, Verdict
from holdfast.dedup.redis_client import ServerClient
from holdfast.dedup.redis_existing import existing_claims
from holdfast.dedup.redis_store import RedisClaims
from holdfast.errors import AccessRefused, HoldfastError, SettingError, StoreRefused, StoreUnavailable
from tests.contracts.redis.test_faults import answered
from tests.harness.servers.certificates import Certificates
from tests.harness.servers.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.dedup.redis_session import RedisSession

SECRET = "se#cr/et"  # noqa: S105 - of a server that lives for one test
ONE = Claim(ClaimKey("h", "k"), Token("p", 0, 1))


@pytest.fixture(scope="module")
def locked() -> Iterator[RedisServer]:
    with RedisServer(password="secret") as server:  # noqa: S106 - as above
        yield server


def texts(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error)


@pytest.mark.parametrize(
    ("field", "setting"),
    [
        ("namespace", {"namespace": ""}),
        ("namespace", {"namespace": "a{b}"}),
        ("namespace", {"namespace": "a b"}),
        ("lease_s", {"lease_s": 0}),
        ("lease_s", {"lease_s": float("nan")}),
        ("window_s", {"window_s": -1}),
        ("window_s", {"window_s": "60"}),
        ("positions_ttl_s", {"positions_ttl_s": float("inf")}),
        ("shards", {"shards": 0}),
        ("shards", {"shards": True}),
        ("shards", {"shards": 1.5}),
        ("keys_expected", {"keys_expected": 0}),
        ("keys_expected", {"keys_expected": 1e6}),
        ("timeout_s", {"timeout_s": 0}),
        ("durability", {"durability": "always"}),
    ],
)
def test_a_setting_that_cannot_work_is_named_at_construction(field: str, setting: dict[str, Any]) -> None:
    with pytest.raises(SettingError) as caught:
        RedisClaims.from_url("redis://127.0.0.1:1/0", **setting)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"socket_timeout": 1.0, "retry": Retry(NoBackoff(), 1)}, "retry"),
        ({"socket_timeout": None, "retry": Retry(NoBackoff(), 0)}, "socket_timeout"),
        ({"socket_timeout": 1.0, "retry": Retry(NoBackoff(), 0), "decode_responses": True}, "decode_responses"),
    ],
)
def test_a_client_that_would_break_the_protocol_is_refused(options: dict[str, Any], word: str) -> None:
    with redis.Redis(**options) as client, pytest.raises(SettingError, match=word):
        RedisClaims(client)


@pytest.mark.parametrize("option", [{"retry_on_timeout": True}, {"retry_on_error": [exceptions.TimeoutError]}])
def test_a_client_that_would_ask_again_without_a_word_of_retries_is_refused(option: dict[str, Any]) -> None:
    client = redis.Redis.from_url("redis://127.0.0.1:1/0", socket_timeout=1.0, **option)
    with client, pytest.raises(SettingError, match="retries"):
        RedisClaims(client)
    client = redis.Redis.from_url("redis://127.0.0.1:1/0", socket_timeout=1.0, retry=Retry(NoBackoff(), 0), **option)
    with client:
        RedisClaims(client).close()


@pytest.mark.parametrize("option", ["nosuch", "single_connection_client", "ssl_cert_reqs"])
@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "redis+sentinel://127.0.0.1:1/name/0"])
def test_an_option_of_a_url_that_no_connection_takes_is_refused(url: str, option: str) -> None:
    with pytest.raises(SettingError, match=rf"'{re.escape(url)}'.*leave out the option.*{option}"):
        RedisClaims.from_url(f"{url}?{option}=1")


def test_a_client_for_one_thread_is_refused(redis_url: str) -> None:
    retry = Retry(NoBackoff(), 0)
    client = redis.Redis.from_url(redis_url, socket_timeout=2.0, retry=retry, single_connection_client=True)
    with client, pytest.raises(SettingError, match="with single_connection_client"):
        RedisClaims(client)


def test_a_client_of_the_callers_is_used_as_it_is_and_left_open(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url, socket_timeout=2.0, retry=Retry(NoBackoff(), 0)) as client:
        claims = RedisClaims(client)
        assert claims.begin().claim([ONE]) == [Verdict.NEW]
        claims.close()
        assert client.ping()


def test_nobody_there_is_unavailable_and_asking_again_helps() -> None:
    with RedisServer() as server:
        claims = RedisClaims.from_url(server.url)
        server.kill()
        with pytest.raises(StoreUnavailable):
            claims.connect()
        server.restart()
        claims.connect()
        claims.connect()
        claims.close()


@pytest.mark.parametrize("given", ["", "mistyped"])
def test_credentials_that_are_missing_or_wrong_are_refused_in_one_sentence(locked: RedisServer, given: str) -> None:
    claims = RedisClaims.from_url(f"redis://{f':{given}@' if given else ''}127.0.0.1:{locked.port}/0")
    with pytest.raises(StoreRefused, match="credentials") as caught:
        claims.connect()
    assert "\n" not in str(caught.value)
    assert "mistyped" not in texts(caught.value)
    claims.close()


def test_a_user_who_may_not_run_scripts_is_refused(locked: RedisServer) -> None:
    with locked.client() as raw:
        raw.acl_setuser("reader", enabled=True, passwords=["+pass"], keys=["*"], commands=["+@all", "-evalsha"])
    claims = RedisClaims.from_url(f"redis://reader:pass@127.0.0.1:{locked.port}/0")
    claims.connect()
    with pytest.raises(StoreRefused):
        claims.begin()
    claims.close()


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@host:6379/0",
        f"redis:{SECRET}@host",
        f"http://user:{SECRET}@host",
        f"redis://user:{SECRET}@host:port/0",
        f"redis://host/0?socket_timeout=x&password={SECRET}",
    ],
)
def test_a_url_that_cannot_be_read_does_not_show_its_password(url: str) -> None:
    with pytest.raises(SettingError) as caught:
        RedisClaims.from_url(url)
    for part in (SECRET, "se#", "cr/et"):
        assert part not in texts(caught.value).split("SettingError", 1)[1]


def test_the_password_is_in_no_text(locked: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    claims = RedisClaims.from_url(locked.url, timeout_s=0.2)
    answered(claims.connect)
    shown = [repr(claims), str(claims), caplog.text]
    session = answered(claims.begin)
    locked.pause()
    try:
        with pytest.raises(StoreUnavailable) as caught:
            session.claim([ONE])
    finally:
        locked.resume()
    shown += [str(caught.value), repr(caught.value), repr(session), repr(caught.value.__cause__)]
    assert not [text for text in shown if "secret" in text]
    session.end()
    claims.close()


def test_an_eviction_policy_that_forgets_is_refused_with_the_remedy() -> None:
    with RedisServer(maxmemory="64mb", policy="allkeys-lru") as server:
        claims = RedisClaims.from_url(server.url)
        with pytest.raises(StoreRefused, match="CONFIG SET maxmemory-policy noeviction"):
            claims.connect()
        with server.client() as raw:
            raw.config_set("maxmemory-policy", "noeviction")
        claims.connect()
        claims.close()


def test_a_replica_is_unavailable(redis_server: RedisServer) -> None:
    with RedisServer(replica_of=redis_server) as replica:
        claims = RedisClaims.from_url(replica.url)
        with pytest.raises(StoreUnavailable, match="replica"):
            claims.connect()
        claims.close()


def test_a_primary_that_becomes_a_replica_is_unavailable_until_it_is_primary_again(redis_server: RedisServer) -> None:
    with RedisServer() as server, server.client() as raw:
        claims = RedisClaims.from_url(server.url)
        session = claims.begin()
        raw.replicaof("127.0.0.1", "1")
        with pytest.raises(StoreUnavailable):
            session.claim([ONE])
        raw.replicaof("NO", "ONE")
        assert session.claim([ONE]) == [Verdict.NEW]
        session.end()
        claims.close()


def test_a_server_that_runs_somebodys_endless_script_is_unavailable() -> None:
    with RedisServer() as server, server.client() as raw, server.client() as other:
        claims = RedisClaims.from_url(server.url, timeout_s=1.0)
        session = claims.begin()
        raw.config_set("lua-time-limit", 1)
        endless = threading.Thread(target=lambda: _killed(other))
        endless.start()
        with pytest.raises(StoreUnavailable):
            _renew_until_it_fails(session)
        raw.script_kill()
        endless.join()
        assert session.claim([ONE]) == [Verdict.NEW]
        session.end()
        claims.close()


def _renew_until_it_fails(session: RedisSession) -> None:
    while session.renew():
        pass  # the endless script has not begun yet


def _killed(client: redis.Redis) -> None:
    with pytest.raises(redis.ResponseError):
        client.eval("while true do end", 0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"shards": 2}),
        ({}, {"hash_keys": True}),
        ({"hash_keys": True}, {"hash_keys": True, "keys_expected": 10_000_000}),
    ],
)
def test_members_that_disagree_on_the_layout_are_refused(
    redis_url: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    first, second = RedisClaims.from_url(redis_url, **one), RedisClaims.from_url(redis_url, **other)
    first.connect()
    with pytest.raises(StoreRefused, match="laid out"):
        second.connect()
    RedisClaims.from_url(redis_url, namespace="another", **other).connect()
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("written", "hash_keys"), [("version=2 shards=1 keys=plain", False), ("version=1 shards=1 keys=hashed", True)]
)
def test_a_layout_written_by_another_version_is_refused(
    redis_url: str, redis_server: RedisServer, written: str, *, hash_keys: bool
) -> None:
    with redis_server.client() as raw:
        raw.set("{hf:holdfast:0}:layout", written)
    with pytest.raises(StoreRefused, match=f"laid out as '{written}'.*run their version"):
        RedisClaims.from_url(redis_url, hash_keys=hash_keys).connect()


class _Emptied(ServerClient):
    """A client whose server is emptied right after it has written something, so many times."""

    times = 1

    def set(self, *args: Any, **options: Any) -> Any:
        done = super().set(*args, **options)
        if self.times:
            self.times -= 1
            self.flushdb()
        return done


@pytest.mark.parametrize(("times", "is_there"), [(1, True), (1_000, False)])
def test_a_server_that_is_emptied_while_a_member_connects_is_asked_again(
    redis_server: RedisServer, times: int, *, is_there: bool
) -> None:
    client = _Emptied(
        host="127.0.0.1", port=redis_server.port, socket_timeout=5.0, retry=Retry(NoBackoff(), 0), protocol=2
    )
    client.times = times
    claims = RedisClaims(client, namespace=f"emptied-{times}")
    if not is_there:  # the start of an app asks again then, for startup_timeout_s
        with pytest.raises(StoreUnavailable, match="is emptied again and again"):
            claims.connect()
        return
    claims.connect()
    with redis_server.client() as raw:
        assert raw.get("{hf:emptied-1:0}:layout") == b"version=4 shards=1 keys=plain"
        assert raw.get("{hf:emptied-1:0}:id") == claims.store_id.encode()


def test_plain_keys_are_laid_out_as_every_version_since_the_fourth_did(
    redis_url: str, redis_server: RedisServer
) -> None:
    RedisClaims.from_url(redis_url).connect()
    with redis_server.client() as raw:
        assert raw.get("{hf:holdfast:0}:layout") == b"version=4 shards=1 keys=plain"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"shards": 3},
        {"hash_keys": True},
        *({"hash_keys": True, "shards": 3, "keys_expected": 10**n + 1} for n in range(12)),
    ],
)
def test_a_tool_finds_the_layout_that_the_members_agreed_on(redis_url: str, settings: dict[str, Any]) -> None:
    members = RedisClaims.from_url(redis_url, **settings)
    members.begin(3600.0).claim([ONE])
    found = existing_claims(redis_url)
    assert found.parts().layout.description == members.parts().layout.description
    found.close()
    members.close()


def test_connecting_says_once_what_the_server_promises(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast.dedup")
    claims = RedisClaims.from_url(redis_url)
    claims.connect()
    claims.connect()
    [line] = [each for each in caplog.messages if "claims in namespace" in each]
    assert all(word in line for word in ("persistence: none", "replicas: 0", "eviction: none"))
    claims.close()


@pytest.mark.parametrize("method", ["connect", "begin"])
def test_a_store_that_cannot_be_reached_raises_errors_of_holdfast_only(method: str) -> None:
    with pytest.raises(HoldfastError) as caught:
        getattr(RedisClaims.from_url("redis://127.0.0.1:1/0"), method)()
    assert caught.value.retriable
    assert isinstance(caught.value.__cause__, redis.RedisError)


def test_a_socket_in_the_file_system_is_as_good_as_any() -> None:
    with RedisServer(unix_socket=True) as server:
        claims = RedisClaims.from_url(server.unix_url)
        session = claims.begin(3600.0)
        assert session.claim([ONE]) == [Verdict.NEW]
        assert "redis.sock/0" in repr(claims)
        session.end()
        claims.close()


def test_a_client_of_sentinels_is_shown_as_what_it_is() -> None:
    sentinel = Sentinel([("127.0.0.1", 1), ("127.0.0.2", 1)], socket_timeout=0.2)  # type: ignore[no-untyped-call]
    master = sentinel.master_for("orders", socket_timeout=0.2, retry=Retry(NoBackoff(), 0))  # type: ignore[no-untyped-call]
    claims = RedisClaims(master)
    assert "orders/0 (by the sentinels 127.0.0.1:1, 127.0.0.2:1)" in repr(claims)
    with pytest.raises(StoreUnavailable, match="orders/0 "):
        claims.connect()
    master.close()


def test_a_certificate_that_nobody_vouches_for_is_refused_at_once(tmp_path: Path) -> None:
    Certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refused() -> None:
            with contextlib.suppress(OSError):
                context.wrap_socket(server.accept()[0], server_side=True)

        serving = threading.Thread(target=refused)
        serving.start()
        claims = RedisClaims.from_url(f"rediss://127.0.0.1:{server.getsockname()[1]}/0")
        with pytest.raises(AccessRefused, match=r"certificate.*ssl_ca_certs"):
            claims.connect()
        serving.join()
        claims.close()


@dataclass
class Telling(redis.CredentialProvider):
    """One whose text has the password, as a dataclass's has."""

    password: str


@pytest.mark.parametrize("made", [partial(redis.UsernamePasswordCredentialProvider, "app"), Telling])
def test_credentials_besides_those_that_are_asked_for_are_refused(
    made: Callable[[str], redis.CredentialProvider],
) -> None:
    provider = made(SECRET)
    with pytest.raises(SettingError) as caught:
        RedisClaims.from_url("redis://app:other@127.0.0.1:1/0", credential_provider=provider)
    assert caught.value.field == "credential_provider"
    assert SECRET not in texts(caught.value)
