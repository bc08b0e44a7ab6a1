"""The shipped scripts in this process (`tests.simulation.lua.lua_redis`) do what they do in a real Redis: they are held
against the specification, as Redis is, and what they ask of a server against a real one."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from redis.exceptions import ResponseError

from holdfast.runtime import MACHINE
from tests.harness import store_groups as groups
from tests.harness import stores
from tests.properties.test_claims_machine import ClaimsMachine
from tests.properties.test_groups_machine import GroupsMachine
from tests.simulation.lua.lua_redis import LuaRedis
from tests.simulation.lua.redis_client import LuaClient
from tests.simulation.lua.redis_data import RedisData
from tests.tiers import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

ALL = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


@pytest.mark.parametrize("layout", [{}, {"hash_keys": True, "keys_expected": 1}], ids=["plain", "digests"])
def test_claims_do_what_the_specification_says(layout: dict[str, Any]) -> None:
    run_state_machine_as_test(
        type("ClaimsMachineInLua", (ClaimsMachine,), {"url": "", "bench": stores.LuaBench, "settings": layout}),
        settings=settings(max_examples=examples(25), stateful_step_count=50, deadline=None, suppress_health_check=ALL),
    )


def test_groups_do_what_the_specification_says() -> None:
    run_state_machine_as_test(
        type("GroupsMachineInLua", (GroupsMachine,), {"url": "", "bench": groups.LuaBench}),
        settings=settings(max_examples=examples(20), stateful_step_count=40, deadline=None, suppress_health_check=ALL),
    )


names = st.sampled_from([b"a", b"b", b"c"])
fields = st.sampled_from([b"1", b"2", b"x"])
values = st.sampled_from([b"", b"7", b"\x00\xff", b"text"])
long_ms = st.sampled_from([b"3600000", b"7200000", b"0", b"-1"])


def command(name: bytes, *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[list[bytes]]:
    """Lists among the parts are spread."""
    return st.tuples(*parts).map(
        lambda drawn: [name, *(word for part in drawn for word in (part if isinstance(part, list) else [part]))]
    )


some_names, some_fields = st.lists(names, min_size=1, max_size=3), st.lists(fields, min_size=1, max_size=3)
pairs = st.lists(st.tuples(fields, values), min_size=1, max_size=3).map(
    lambda drawn: [x for pair in drawn for x in pair]
)
#: Each command that a script or the client uses; those whose reply is drawn are tested apart.
commands = st.one_of(
    command(b"GET", names),
    command(b"MGET", some_names),
    command(b"SET", names, values),
    command(b"SET", names, values, st.just([b"NX"])),
    command(b"SET", names, values, st.just([b"PX", b"3600000"])),
    command(b"HGET", names, fields),
    command(b"HMGET", names, some_fields),
    command(b"HGETALL", names),
    command(b"HKEYS", names),
    command(b"HVALS", names),
    command(b"HLEN", names),
    command(b"HEXISTS", names, fields),
    command(b"HSET", names, pairs),
    command(b"HSETNX", names, fields, values),
    command(b"HINCRBY", names, st.just(b"n"), st.sampled_from([b"1", b"-3"])),
    command(b"HDEL", names, some_fields),
    command(b"DEL", some_names),
    command(b"UNLINK", some_names),
    command(b"EXISTS", some_names),
    command(b"PEXPIRE", names, long_ms),
    command(b"PTTL", names),
)


def _asked(client: redis.Redis, words: Sequence[bytes]) -> object:
    try:
        reply: object = client.execute_command(*words)  # type: ignore[no-untyped-call]
    except ResponseError as error:
        return "error" if "WRONGTYPE" in str(error) else error
    if words[0] == b"PTTL" and isinstance(reply, int) and reply > 0:
        return round(reply / 600_000)
    return reply


@settings(max_examples=examples(60), deadline=None, suppress_health_check=ALL)
@given(st.lists(commands, min_size=1, max_size=40))
def test_each_command_replies_as_a_real_server(redis_url: str, words: list[list[bytes]]) -> None:
    lua = LuaClient(LuaRedis(MACHINE).call, 30.0)
    with redis.Redis.from_url(redis_url, protocol=2, socket_timeout=30.0) as real:
        real.flushdb()
        for each in words:
            assert _asked(lua, each) == _asked(real, each), each


RETURNED = [
    "return 7.9",
    "return -7.9",
    "return {1, 'two', {3}, false, 5, nil, 7}",
    "return true",
    "return false",
    "return {}",
    "return redis.status_reply('OK')",
    "return redis.call('SET', KEYS[1], ARGV[1])",
    "return redis.call('GET', KEYS[1]) or 'absent'",
    "redis.call('HSET', KEYS[2], 1.5, 2, 3, 1e15) return redis.call('HGETALL', KEYS[2])",
    "return {redis.call('HMGET', KEYS[2], 'x', '3')[1] == false, #KEYS, #ARGV}",
    "return string.format('%.0f', 2^53 + 0.5) .. tostring(bit.band(255, 12))",
    "return {unpack(redis.call('HMGET', KEYS[2], 'x', '3'), 1, 2)}",
    "return redis.call('TIME')[1] * 1000 > 1.6e12",
]
REFUSED = ["mine = 1", "return absent", "return redis.call('HGET', KEYS[1], 'x')", "return redis.call('GET', {})", "x("]


@pytest.mark.parametrize("script", [*RETURNED, *REFUSED])
def test_a_script_returns_what_it_returns_in_a_real_server(redis_url: str, script: str) -> None:
    lua = LuaClient(LuaRedis(MACHINE).call, 30.0)
    with redis.Redis.from_url(redis_url, protocol=2, socket_timeout=30.0) as real:
        real.flushdb()
        told: list[object] = []
        for client in (lua, real):
            client.execute_command("SET", "text", "here")
            client.execute_command("HSET", "hash", "x", "y")
            try:
                reply = client.execute_command(b"EVAL", f"#!lua\n{script}".encode(), 2, b"text", b"hash", b"arg")
            except ResponseError as error:
                reply = type(error)
            told.append(sorted(reply, key=str) if "HGETALL" in script else reply)
    assert told[0] == told[1]
    assert (script in REFUSED) == (told[0] is ResponseError)


def test_what_is_past_its_time_is_gone_after_that_millisecond() -> None:
    data = RedisData(Random(1))
    data.run(b"SET", [b"a", b"1", b"PX", b"10"])
    data.run(b"HSET", [b"b", b"x", b"y"])
    data.run(b"PEXPIRE", [b"b", b"10"])
    data.now_ms = 10
    assert data.run(b"PTTL", [b"a"]) == 0
    assert data.run(b"EXISTS", [b"a", b"b"]) == 2
    data.now_ms = 11
    assert data.run(b"EXISTS", [b"a", b"b"]) == 0
    assert data.run(b"HGETALL", [b"b"]) == []


def test_fields_are_drawn_once_each() -> None:
    data = RedisData(Random(1))
    data.run(b"HSET", [b"h", *(word for n in range(5) for word in (b"%d" % n, b"v"))])
    drawn = data.run(b"HRANDFIELD", [b"h", b"3", b"WITHVALUES"])
    assert isinstance(drawn, list)
    assert len(set(map(str, drawn[::2]))) == 3
    assert drawn[1::2] == [b"v"] * 3
    assert len(data.run(b"HRANDFIELD", [b"h", b"9"])) == 5  # type: ignore[arg-type]
    assert data.run(b"HRANDFIELD", [b"none", b"9"]) == []


def test_a_replica_takes_over_with_what_it_had_and_knows_no_script() -> None:
    server = LuaRedis(MACHINE)
    client = LuaClient(server.call, 30.0)
    text = b"return redis.call('GET', KEYS[1])"
    client.set("a", "before")
    take_over = server.replica()
    client.set("a", "after")
    client.hset("h", "x", "y")
    before = client.info()
    take_over()
    assert client.get("a") == b"before"
    assert not client.exists("h")
    after = client.info()
    assert (after["run_id"], after["master_replid"] == before["master_replid"]) == (before["run_id"], False)
    assert client.execute_command(b"EVAL", text, 1, b"a") == b"before"
    server.restart()
    assert client.info()["run_id"] != after["run_id"]
    assert client.get("a") is None
