"""A store that fails over: what it had acknowledged may be lost, its calls fail in odd ways, and the app goes on."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import MemoryClaims, RedisClaims, Settings
from holdfast.plugin.events import SessionLost, StoreDown, StoreUp
from tests.harness.engine import Bench, numbered
from tests.harness.servers.redis import RedisServer

if TYPE_CHECKING:
    from holdfast.plugin.events import Event

SETTINGS = Settings(workers=8, commit_interval_s=0.01)
KEYED: dict[str, Any] = {"key": lambda record: record.value or b""}


@pytest.mark.parametrize("keyed", [False, True])
def test_claims_that_were_acknowledged_and_lost_make_nothing_run_twice(*, keyed: bool) -> None:
    store = MemoryClaims()
    with Bench(claims=store, orders=2) as bench:
        bench.broker.produce("orders", 0, "first")
        member = bench.member(settings=SETTINGS, **KEYED if keyed else {})
        bench.wait_committed(1)
        with store.state.lock:
            behind = copy.deepcopy((store.state.positions, store.state.keys))
        held = numbered("x", range(8))
        bench.work.hold(*held)
        for number, value in enumerate(held):
            bench.broker.produce("orders", number % 2, value, key=value)
        bench.wait_running(*held)
        with store.state.lock:
            store.state.positions, store.state.keys = behind
        bench.work.let_go()
        bench.wait_committed(5)
        bench.wait_committed(4, 1)
        assert member.told(SessionLost) == []
    assert set(bench.work.starts().values()) == {1}


def test_a_server_that_takes_no_writes_for_moments_under_load_pauses_the_app_and_no_more() -> None:
    with RedisServer() as server, server.client() as raw:
        claims = RedisClaims.from_url(server.url)
        with Bench(claims=claims, orders=4) as bench:
            member = bench.member(settings=SETTINGS, **KEYED)

            def await_told(kind: type[Event], times: int) -> None:
                bench.wait(lambda: len(member.told(kind)) >= times)

            bench.wait(lambda: len(member.owns) == 4)  # at its start it would wait for the server without a word
            for turn in range(6):
                for number in range(4):
                    bench.broker.produce("orders", number, *numbered(f"{turn}-{number}-", range(25)))
                raw.replicaof("127.0.0.1", "1")
                for number in range(4):  # whatever was handled before: there is something to ask the server for
                    bench.broker.produce("orders", number, *numbered(f"{turn}-{number}-", range(25, 50)))
                await_told(StoreDown, turn + 1)
                raw.replicaof("NO", "ONE")
                await_told(StoreUp, turn + 1)
            for number in range(4):
                bench.wait_committed(300, number)
            assert member.error is None
            assert not member.over.is_set()
        assert set(bench.work.starts().values()) == {1}
