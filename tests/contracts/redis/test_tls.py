"""A Redis over TLS, with an authority of its own, the user of the page, and passwords that change under load."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
import redis

from holdfast import RedisClaims, Settings
from holdfast.dedup.claims import Claim, ClaimKey, Token, Verdict
from holdfast.dedup.redis_existing import existing_claims
from holdfast.errors import AccessRefused
from tests.cli.bench import holdfast
from tests.contracts.redis.test_rights import app_line, tool_line
from tests.harness.engine import Bench, numbered
from tests.harness.servers.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

ONE = Claim(ClaimKey("h", "s:k"), Token("p", 0, 1))
KEYED: dict[str, Any] = {"key": lambda record: record.value or b""}
OLD, NEW = "the-old-word", "the-new-word"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(password="of-the-admin", tls=tmp_path_factory.mktemp("tls")) as made:  # noqa: S106 - for one test
        yield made


@pytest.fixture(autouse=True)
def user(server: RedisServer) -> None:
    with server.client() as raw:
        raw.flushall()
        raw.execute_command("ACL", "DELUSER", "app")
        raw.execute_command("ACL", "SETUSER", "app", *f"{app_line()} {tool_line()}".replace("PASSWORD", OLD).split())


def test_a_store_over_tls_is_as_good_as_any(server: RedisServer) -> None:
    claims = RedisClaims.from_url(server.url_of("app", OLD))
    session = claims.begin(3600.0)
    assert session.claim([ONE]) == [Verdict.NEW]
    existing_claims(server.url_of("app", OLD)).close()
    assert "claimed" in holdfast("claims", "show", "k", "--redis", server.url_of("app", OLD), "--scope", "h").stdout
    session.end()
    claims.close()


def test_an_authority_that_is_not_named_and_a_name_that_is_not_in_the_certificate_are_refused(
    server: RedisServer,
) -> None:
    url = server.url_of("app", OLD)
    for wrong in (url.partition("?")[0], url.replace("127.0.0.1", "127.1")):
        claims = RedisClaims.from_url(wrong)
        with pytest.raises(AccessRefused, match=r"certificate.*ssl_ca_certs"):
            claims.connect()
        claims.close()


class Rotating(redis.CredentialProvider):
    """Says what it is told to say, and counts."""

    def __init__(self) -> None:
        self.password = OLD
        self.asked: list[str] = []

    def get_credentials(self) -> tuple[str, str]:
        self.asked.append(self.password)
        return ("app", self.password)


def test_a_password_that_changes_under_load_loses_and_repeats_nothing(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    provider = Rotating()
    claims = RedisClaims.from_url(server.url_of("", ""), credential_provider=provider, namespace="rotated")
    values = numbered("x", range(2_000))
    with Bench(claims=claims, orders=4) as bench, server.client() as raw:
        for name in "ab":
            bench.member(name, settings=Settings(workers=4, commit_interval_s=0.01), **KEYED)
        fed = threading.Thread(target=_feed, args=(bench, values))
        fed.start()
        bench.wait(lambda: len(bench.work.values()) > 100)
        raw.execute_command("ACL", "SETUSER", "app", f">{NEW}")
        provider.password = NEW
        raw.execute_command("ACL", "SETUSER", "app", f"<{OLD}")
        provider.asked.clear()
        raw.client_kill_filter(user="app")
        bench.wait(lambda: provider.asked)
        fed.join()
        for number in range(4):
            bench.wait_committed(500, number)
        assert [member.error for member in bench.members] == [None, None]
    assert set(provider.asked) == {NEW}
    times = bench.work.starts()
    assert set(times) == set(values)
    assert set(times.values()) == {1}
    assert OLD not in caplog.text
    assert NEW not in caplog.text


def _feed(bench: Bench, values: list[str]) -> None:
    for first in range(0, len(values), 20):
        for number in range(4):
            bench.broker.produce("orders", number, *values[first + 5 * number : first + 5 * number + 5])
        threading.Event().wait(0.01)
