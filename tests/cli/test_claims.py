"""`holdfast claims` on a real Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import RedisClaims
from holdfast.dedup.claims import Claim, ClaimKey, Token
from tests.cli.bench import Shop, holdfast, lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.harness.servers.kafka import KafkaServer

SCOPE = "billing/orders"


@pytest.fixture(params=["plain", "3 shards of digests"])
def store(redis_url: str, request: pytest.FixtureRequest) -> Iterator[RedisClaims]:
    """4711 is done as a number, "4711" as text is being worked on, a dead session has left "left"."""
    hashed = request.param != "plain"
    made = RedisClaims.from_url(redis_url, shards=3 if hashed else 1, hash_keys=hashed)
    session = made.begin(3600.0)
    session.claim([claim("n:4711", 1), claim("s:4711", 2), claim("s:done", 3)])
    session.finish([claim("n:4711", 1), claim("s:done", 3)])
    dead = made.begin(3600.0)
    dead.claim([claim("s:left", 4)])
    dead.end()
    yield made
    session.end()
    made.close()


def claim(key: str, offset: int) -> Claim:
    return Claim(ClaimKey(SCOPE, key), Token("billing/orders/id/0", offset, 1))


def test_a_key_is_shown_as_what_it_was_stored(store: RedisClaims, redis_url: str) -> None:
    asked = ("claims", "show", "4711", "left", "absent", "--redis", redis_url, "--scope", SCOPE)
    text, number, left, absent = lines(holdfast(*asked, "--json"))
    assert (text["key"], text["stored_as"], text["state"]) == ("4711", "s:4711", "claimed")
    assert (text["session_lives"], text["offset"]) == (True, 2)
    assert (number["key"], number["stored_as"], number["state"]) == ("4711", "n:4711", "done")
    assert number["left_s"] > 0
    assert (left["state"], left["session_lives"]) == ("claimed", False)
    assert (absent["stored_as"], absent["state"]) == (None, "absent")
    told = holdfast(*asked).stdout
    assert [line.split()[:3] for line in told.splitlines()[1:]] == [
        ["4711", "text", "claimed"],
        ["4711", "number", "done"],
        ["left", "text", "claimed"],
        ["absent", "-", "absent"],
    ]


def test_where_nothing_is_known_under_a_scope_that_is_said(store: RedisClaims, redis_url: str) -> None:
    """A misspelled scope looks like a key that was never done."""
    asked = ("claims", "show", "4711", "--redis", redis_url, "--scope")
    assert "the store has no key" not in holdfast("claims", "show", "nobody", *asked[3:], SCOPE).stdout
    if "keys=hashed" in str(store):  # which scopes they are of is not known
        assert "the store has no key" not in holdfast(*asked, f"{SCOPE}s").stdout
        return
    assert f"the store has no key in the scope {SCOPE}s: check its spelling" in holdfast(*asked, f"{SCOPE}s").stdout
    assert lines(holdfast(*asked, f"{SCOPE[:-1]}*", "--json"))[-1] == {
        "type": "scope",
        "scope": f"{SCOPE[:-1]}*",
        "known": False,
    }


def test_forgetting_under_a_scope_that_nothing_is_known_of_says_so(store: RedisClaims, redis_url: str) -> None:
    asked = ("claims", "forget", "done", "--redis", redis_url, "--scope")
    said = "the store has no key in the scope"
    hashed = "keys=hashed" in str(store)  # which scopes they are of is not known
    assert (said in holdfast(*asked, f"{SCOPE}s").stdout) is not hashed
    *before, last = lines(holdfast(*asked, f"{SCOPE}s", "--json"))
    assert ({"type": "scope", "scope": f"{SCOPE}s", "known": False} in before) is not hashed
    assert (last["type"], last["absent"]) == ("forget", 1)
    assert said not in holdfast(*asked, SCOPE).stdout, "the key was there"
    assert said not in holdfast(*asked, SCOPE).stdout, "others are"


def test_forgetting_keeps_what_a_process_that_lives_works_on(
    store: RedisClaims, redis_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text("4711\nleft\n\nabsent\n4711\n")
    asked = (
        "claims",
        "forget",
        "done",
        "--file",
        file,
        "--redis",
        redis_url,
        "--group",
        "billing",
        "--topic",
        "orders",
    )
    expected = {("n:4711", "forgotten"), ("s:4711", "held"), ("s:left", "forgotten"), ("s:done", "forgotten")}
    for dry in (["--dry-run"], []):
        *found, told = lines(holdfast(*asked, *dry, "--json", code=1))
        assert (told["type"], told["forgotten"], told["held"], told["absent"]) == ("forget", 3, 1, 1)
        assert {(each["stored_as"], each["became"]) for each in found} == {*expected, (None, "absent")}
    assert "1 forgotten, 0 kept, 3 absent" in holdfast(*asked, "--force").stdout
    shown = lines(holdfast("claims", "show", "4711", "left", "--redis", redis_url, "--scope", SCOPE, "--json"))
    assert [each["state"] for each in shown if each["type"] == "key"] == ["absent", "absent"]


def test_stats_agree_with_what_was_put_in(store: RedisClaims, redis_url: str) -> None:
    asked = ("claims", "stats", "--redis", redis_url)
    [found] = lines(holdfast(*asked, "--json"))
    assert (found["done"], found["claimed"], found["sessions_live"]) == (2, 2, 1)
    assert found["by_scope"] in (None, {SCOPE: 4})
    assert "keys done" in holdfast(*asked).stdout


def test_a_namespace_that_nobody_uses_is_told_and_not_made(redis_url: str) -> None:
    for _ in range(2):
        ran = holdfast("claims", "stats", "--redis", redis_url, "--namespace", "typo", code=1)
        assert "no namespace 'typo'" in ran.stderr


def test_a_forgotten_key_runs_again(kafka: KafkaServer, redis_url: str) -> None:
    shop = Shop(kafka, redis_url)
    shop.send([1, 2])
    with shop.app():
        shop.until(billed=2)
        shop.send([1, 2])
    holdfast("claims", "forget", "1", "--redis", redis_url, "--group", shop.group, "--topic", shop.topic)
    shop.send([1, 2, 3])
    with shop.app():
        shop.until(billed=4)
    assert shop.billed == {1: 2, 2: 1, 3: 1}
