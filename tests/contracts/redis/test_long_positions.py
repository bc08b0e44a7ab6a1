"""What is done above a watermark that stands still may be millions: the promises are the same, and no call is long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.dedup.claims import Acquired, Drop, LetGo, Mark, Wait
from holdfast.dedup.offset_set import OffsetSet
from holdfast.dedup.redis_admin import RedisAdmin
from holdfast.dedup.redis_session import RedisSession
from tests.harness.stores import LuaBench, MemoryBench, RedisBench
from tests.simulation.lua.lua_redis import LuaRedis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.dedup.claims import ClaimSession
    from tests.harness.stores import Bench

P = "orders-0"
#: More chunks of 256 than one script touches (positions.lua's LONG), and many more than one reply tells.
END = 1_300_000
ROW = range(1, END)
#: As transactions of a few records leave it: markers are no records.
GAPS = range(1, END, 250)


@pytest.fixture(params=["memory", "redis", "lua"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made: Bench = MemoryBench()
    if request.param != "memory":
        url = request.getfixturevalue("redis_url") if request.param == "redis" else ""
        made = {"lua": LuaBench, "redis": RedisBench}[request.param](url)
    yield made
    made.close()


def own(session: ClaimSession) -> Acquired:
    [reply] = session.acquire([P])
    assert isinstance(reply, Acquired), reply
    return reply


def mark(session: ClaimSession, epoch: int, offsets: range, watermark: int = 0) -> int:
    [fenced] = session.mark([Mark(P, epoch, watermark, offsets)])
    return len(fenced)


@pytest.mark.parametrize("offsets", [ROW, GAPS], ids=["row", "gaps"])
def test_the_next_owner_knows_all_that_is_done(bench: Bench, offsets: range) -> None:
    a, b = bench.begin(), bench.begin()
    epoch = own(a).epoch
    assert mark(a, epoch, offsets) == 0
    a.let_go([LetGo(P, epoch, [0])])
    found = own(b)
    assert (found.watermark, list(found.running)) == (0, [0])
    assert found.done == OffsetSet(offsets)


def test_a_hole_of_a_billion_between_hides_nothing(bench: Bench) -> None:
    a, b = bench.begin(), bench.begin()
    epoch = own(a).epoch
    near, far = GAPS, range(10**12, 10**12 + END, 250)
    assert mark(a, epoch, near) == mark(a, epoch, far) == 0
    a.let_go([LetGo(P, epoch, [])])
    assert own(b).done == OffsetSet([*near, *far])


@pytest.mark.parametrize("offsets", [ROW, GAPS], ids=["row", "gaps"])
def test_a_failover_that_forgot_them_is_told_by_the_owner_that_lets_go(bench: Bench, offsets: range) -> None:
    a, b = bench.begin(), bench.begin()
    epoch = own(a).epoch
    fail_over = bench.replica()
    mark(a, epoch, offsets)
    fail_over()
    a.let_go([LetGo(P, epoch, [])])
    assert own(b).done == OffsetSet(offsets)


@pytest.mark.parametrize("offsets", [ROW, GAPS], ids=["row", "gaps"])
def test_the_record_that_held_the_watermark_lets_it_pass_all_of_them(bench: Bench, offsets: range) -> None:
    a, b = bench.begin(), bench.begin()
    epoch = own(a).epoch
    mark(a, epoch, offsets)
    assert mark(a, epoch, range(1), watermark=END) == 0
    assert mark(a, epoch, range(END + 5, END + 7), watermark=END) == 0
    a.let_go([LetGo(P, epoch, [])])
    found = own(b)
    assert (found.watermark, found.done) == (END, {END + 5, END + 6})
    if isinstance(bench, RedisBench):
        [name] = bench.raw.scan_iter(b"*:p:*")
        assert int(bench.raw.hlen(name)) < 10


def test_a_reset_knows_up_to_where_they_were(bench: Bench) -> None:
    a = bench.begin()
    epoch = own(a).epoch
    mark(a, epoch, ROW)
    assert a.drop([Drop(P, epoch, 7)]) == [True]
    found = own(a)
    assert (found.watermark, found.done, found.again) == (7, set(), END)


def test_who_has_lost_the_partition_is_fenced_but_for_what_is_done(bench: Bench) -> None:
    a, b = bench.begin(), bench.begin()
    mark(a, own(a).epoch, range(1, END // 2))
    assert mark(b, 1, ROW) == END - END // 2


def test_who_is_taken_over_while_it_reads_the_position_does_not_own_it(bench: Bench) -> None:
    if isinstance(bench, MemoryBench):
        return  # one step there
    a, b = bench.begin(), bench.begin()
    assert isinstance(b, RedisSession)
    mark(a, own(a).epoch, ROW)
    bench.kill(a.id)
    ask = b._asker.ask

    def slow(*args: object, **kwargs: object) -> object:
        bench.kill(b.id)
        own(bench.begin())
        return ask(*args, **kwargs)  # type: ignore[arg-type]

    b._asker.ask = slow  # type: ignore[method-assign, assignment]
    assert b.acquire([P]) == [Wait.WAIT]


def test_a_tool_that_sets_a_long_position_knows_up_to_where_it_was(bench: Bench) -> None:
    if not isinstance(bench, RedisBench):
        return  # tools are for a Redis
    a, b = bench.begin(), bench.begin()
    mark(a, own(a).epoch, ROW)
    bench.kill(a.id)
    admin = RedisAdmin.of(bench.claims)
    assert [(each.watermark, each.done_above) for each in admin.positions()] == [(0, END - 1)]
    assert admin.set_position(P, 5)
    assert (own(b).watermark, own(b).again) == (5, END)


def test_no_script_touches_more_than_some_thousand_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis answers nobody meanwhile."""
    touched = [0]
    called, evalsha = LuaRedis._called, LuaRedis._evalsha

    def count_fields(self: LuaRedis, name: bytes, *args: object) -> object:
        # Of a reply that is asked for as a whole, all of it.
        touched[-1] += len(self._data.run(name, [bytes(args[0])])) if name == b"HKEYS" else len(args)  # type: ignore[arg-type, call-overload]
        return called(self, name, *args)

    def count_script(self: LuaRedis, *args: bytes) -> object:
        touched.append(len(args))
        return evalsha(self, *args)

    monkeypatch.setattr(LuaRedis, "_called", count_fields)
    monkeypatch.setattr(LuaRedis, "_evalsha", count_script)
    bench = LuaBench("")
    a, b, c = (bench.begin() for _ in range(3))
    epoch = own(a).epoch
    for offsets in (ROW, range(END, 2 * END, 256)):
        mark(a, epoch, offsets)
    a.let_go([LetGo(P, epoch, [0])])
    epoch = own(b).epoch
    mark(a, 1, range(1))
    b._servers._complete = [b""]  # as after a failover: all is said again
    assert b.renew()
    mark(b, epoch, range(0), watermark=END)
    b.drop([Drop(P, epoch, 3)])
    mark(c, epoch, ROW)
    bench.close()
    assert max(touched) < 15_000, max(touched)


def test_a_drop_that_a_failover_has_lost_is_said_before_what_was_done_since() -> None:
    bench = LuaBench("")
    a, b = bench.begin(), bench.begin()
    epoch = own(a).epoch
    mark(a, epoch, range(1, 90))
    mark(a, epoch, range(0), watermark=60)
    fail_over = bench.replica()
    assert a.drop([Drop(P, epoch, 7)]) == [True]
    mark(a, epoch, GAPS)
    fail_over()
    a._servers._complete = [b""]  # as after a failover that it notices
    assert a.renew()
    a.let_go([LetGo(P, epoch, [])])
    found = own(b)
    assert (found.watermark, found.again) == (7, 90)
    assert found.done == OffsetSet([offset for offset in GAPS if offset >= 7])
    bench.close()
