"""The user that the page describes: with these rights everything works, without any of them something would not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from holdfast import RedisClaims, Settings, idempotent
from holdfast.dedup.claims import Acquired, AskInHand, Claim, ClaimKey, Drop, LetGo, Mark, Token, Verdict
from holdfast.dedup.groups import Member
from holdfast.dedup.redis_admin import RedisAdmin
from holdfast.dedup.redis_coordinator import RedisCoordinator
from holdfast.dedup.redis_groups import RedisGroupSession
from holdfast.dedup.redis_spark_batches import RedisBatches
from holdfast.dedup.spark_batches import BatchId, Begun
from holdfast.errors import AccessRefused
from holdfast.timing import Deadline
from tests.cli.bench import holdfast
from tests.harness.engine import Bench, numbered
from tests.harness.servers.redis import RedisServer
from tests.harness.store_groups import in_turn, queues

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "explanation" / "store.md").read_text("utf-8")
SCRIPTS = ROOT / "holdfast" / "dedup" / "scripts"
#: What the client sends itself, beside what its scripts do.
ITS_OWN = frozenset(
    {"eval", "evalsha", "info", "time", "wait", "select", "client|setname"}
    | {"get", "set", "hset", "hmget", "hgetall", "hlen", "hvals", "mget", "pexpire", "unlink"}
)
#: What is refused and changes nothing, and how the log of Redis 6.2 has it.
REFUSED = frozenset({"config|get", "client|setinfo", "config", "client"})
KEYED: dict[str, Any] = {"key": lambda record: record.value or b""}


def app_line() -> str:
    """What follows ACL SETUSER app."""
    [line] = re.findall(r"^ACL SETUSER app (on .*)$", PAGE, re.MULTILINE)
    return str(line)


def tool_line() -> str:
    [line] = re.findall(r"`ACL SETUSER app (\+scan[^`]*)`", PAGE)
    return str(line)


def permit(server: RedisServer, line: str, user: str = "app") -> None:
    with server.client() as raw:
        raw.execute_command("ACL", "SETUSER", user, *line.replace("PASSWORD", "pass").split())


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer(password="of-the-admin") as made:  # noqa: S106 - of a server that lives for one test
        permit(made, app_line())
        yield made


def url(server: RedisServer, db: int = 0) -> str:
    return f"redis://app:pass@127.0.0.1:{server.port}/{db}"


def refused(server: RedisServer) -> set[str]:
    """What the server's log of refusals has."""
    with server.client() as raw:
        log = raw.acl_log(100)
    return {str(each["object"]).lower() for each in log}


def test_the_page_permits_the_commands_of_the_scripts_and_of_the_client_and_no_other() -> None:
    permitted = set(re.findall(r"\+(\S+)", app_line()))
    scripts = {
        command.lower()
        for path in SCRIPTS.glob("*.lua")
        for command in re.findall(r"call\('([A-Z]+)'", path.read_text("utf-8"))
    }
    assert permitted == scripts | ITS_OWN


@pytest.mark.parametrize("hash_keys", [False, True])
def test_the_whole_life_of_an_app_needs_no_more(server: RedisServer, *, hash_keys: bool) -> None:
    claims = RedisClaims.from_url(url(server, db=1), hash_keys=hash_keys, shards=2)
    with Bench(claims=claims, orders=2) as bench:
        first = bench.member("a", settings=Settings(workers=4, commit_interval_s=0.01), **KEYED)
        bench.broker.produce("orders", 0, *numbered("x", range(20)))
        bench.wait_committed(20)
        bench.member("b", settings=Settings(workers=4, commit_interval_s=0.01), **KEYED)
        bench.work.hold("held")
        bench.broker.produce("orders", 1, "held", *numbered("x", range(30)))
        bench.wait_running("held")
        first.app.stop()
        bench.work.let_go()
        first.join()
        bench.wait_committed(31, 1)
    assert set(bench.work.starts().values()) == {1}
    assert refused(server) <= REFUSED


@pytest.mark.parametrize("hash_keys", [False, True])
def test_each_call_of_the_store_needs_no_more(server: RedisServer, *, hash_keys: bool) -> None:
    with RedisServer(password="of-the-admin", replica_of=server):  # noqa: S106 - as above
        claims = RedisClaims.from_url(url(server), hash_keys=hash_keys, durability="wait1", timeout_s=10.0)
        _sessions(claims)
        _groups(claims)
        batches = RedisBatches.of(claims)
        for number in range(2):
            begun = batches.begin(BatchId("lake", "q", number), claims.begin(3600.0))
            assert isinstance(begun, Begun)
            batches.claim(begun.attempt, ["a", "b"])
            batches.fate(begun.attempt)
            assert batches.finish(begun.attempt)
        assert batches.done("lake", ["a"]) == [True]
        batches.give_up(claims.begin(3600.0).id)
        calls: list[str] = []

        def charge_once(order_id: str) -> str:
            calls.append(order_id)
            return order_id

        charge = idempotent(claims, key="order_id", name="charge")(charge_once)
        assert charge("1") == charge("1") == "1"
        assert calls == ["1"]
        claims.close()
    assert refused(server) <= REFUSED


def _sessions(claims: RedisClaims) -> None:
    a, b = claims.begin(3600.0), claims.begin(3600.0)
    [mine] = a.acquire(["p"])
    assert isinstance(mine, Acquired)
    one, two = (Claim(ClaimKey("h", key), Token("p", offset, mine.epoch)) for offset, key in enumerate("ab"))
    assert [verdict for verdict, _ in a.claim_fenced([one, two])] == [Verdict.NEW] * 2
    assert a.finish([one], ["result"]) == [Verdict.NEW]
    assert a.results([one.key]) == ["result"]
    a.unclaim([two])
    assert a.drop([Drop("p", mine.epoch, 0)]) == [True]
    assert a.mark([Mark("p", mine.epoch, 1, [3])]) == [frozenset()]
    a.let_go([LetGo("p", mine.epoch, [4, 5])])
    [theirs] = b.acquire(["p"])
    assert isinstance(theirs, Acquired)
    b.poll([AskInHand("p", theirs.epoch, [4, 5])])
    a.release([Token("p", 4, mine.epoch)])
    assert a.renew()
    a.end()


def _groups(claims: RedisClaims) -> None:
    coordinator = RedisCoordinator(claims)
    member = Member(client_id="c", subscription="orders:*")
    kept = [
        coordinator.join("g", member, Deadline(30.0), strategy=in_turn, wake=lambda: None, queues=queues(4))
        for _ in range(2)
    ]
    coordinator.note("g", {"a": "b"})
    assert coordinator.noted("g", ["a"]) == ["b"]
    assert len(coordinator.describe("g").members) == 2
    session = RedisGroupSession(claims.parts(), "another")
    session.restore(RedisGroupSession(claims.parts(), "g").look())
    for each in kept:
        each.leave(Deadline(30.0))
    assert coordinator.remove("g")


def test_the_command_line_needs_what_the_page_adds(server: RedisServer) -> None:
    claims = RedisClaims.from_url(url(server))
    session = claims.begin(3600.0)
    one = Claim(ClaimKey("billing/orders", "s:1"), Token("p", 0, 1))
    session.claim([one])
    session.finish([one])
    asked = ("--redis", url(server))
    ran = holdfast("claims", "stats", *asked, code=1)
    assert "no permissions to run the 'dbsize'" in ran.stderr
    assert "pass" not in ran.stderr.replace("password", "")
    permit(server, tool_line())
    with server.client() as raw:
        raw.execute_command("ACL", "LOG", "RESET")
    assert "1" in holdfast("claims", "stats", *asked).stdout
    assert "done" in holdfast("claims", "show", "1", *asked, "--scope", "billing/orders").stdout
    admin = RedisAdmin.of(claims)
    admin.set_position("billing/orders/id/0", 5)
    assert [each.watermark for each in admin.positions()] == [5]
    holdfast("claims", "forget", "1", *asked, "--scope", "billing/orders")
    assert refused(server) <= REFUSED
    claims.close()


def test_neither_other_keys_nor_other_commands_are_permitted(server: RedisServer) -> None:
    permit(server, tool_line())
    with redis.Redis.from_url(url(server)) as client:
        for command in (("GET", "another"), ("FLUSHALL",), ("CONFIG", "GET", "*"), ("KEYS", "*"), ("ACL", "LIST")):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command)
        with pytest.raises(redis.exceptions.ResponseError):
            client.eval("return redis.call('GET', 'another')", 0)


@pytest.mark.parametrize("command", ["info", "evalsha", "time", "hset"])
def test_without_one_of_them_the_start_ends_with_a_sentence(server: RedisServer, command: str) -> None:
    permit(server, f"-{command}")
    claims = RedisClaims.from_url(url(server))
    with pytest.raises(AccessRefused, match="check user and password, and that the user may"):
        claims.begin(3600.0)
    claims.close()
