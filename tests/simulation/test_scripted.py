"""A scripted world: what a test does to the group happens, and each assertion holds what it says."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchOf, DeadLetterLimit, Holdfast, Record, Retry, Settings
from holdfast.dedup.memory import MemoryClaims
from holdfast.errors import HandlerFailed, SettingError
from holdfast.records import Partition
from holdfast.testing import ScriptedWorld, make_record, simulate
from tests.harness.group.config import KAFKA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.testing.scripted.member import MakeApp


@pytest.fixture
def stage() -> Iterator[ScriptedWorld]:
    with ScriptedWorld() as made:
        yield made


def app_of(handle: Callable[[Any], Any], settings: Settings | None = None, **options: Any) -> MakeApp:
    options = {"key": "id", "name": "handle", **options}

    def make_app(source: Any, claims: Any) -> Holdfast:
        app = Holdfast(source, claims=claims, settings=settings or Settings(workers=4))
        app.handler("orders", **options)(handle)
        return app

    return make_app


def send(stage: ScriptedWorld, count: int = 12, *, partition: int | None = None) -> None:
    for number in range(count):
        stage.produce("orders", {"id": number}, key=f"k{number % 5}", partition=partition)


def assert_all_well(stage: ScriptedWorld, done: list[Any]) -> None:
    stage.settle()
    stage.assert_once()
    stage.assert_once(done)
    stage.assert_nothing_lost()
    stage.assert_nothing_lost(done, by="id")
    stage.assert_order()
    stage.assert_committed()
    stage.assert_dead_lettered(by="id")


def working(stage: ScriptedWorld, done: list[Any]) -> Callable[[Record], None]:
    def handle(record: Record) -> None:
        stage.sleep(0.5)
        if record.cancelled:
            raise TimeoutError("it is another's by now")
        done.append(record.json()["id"])

    return handle


MOVES: dict[str, Callable[[ScriptedWorld, Any, Any], object]] = {
    "revoke": lambda _, a, b: a.revoke(),
    "revoke to": lambda _, a, b: a.revoke("orders", a.partitions[0].number, to=b),
    "assign": lambda _, a, b: b.assign("orders", a.partitions[0].number),
    "stop": lambda _, a, b: a.stop(),
    "zombie": lambda _, a, b: a.zombie(),
    "slow": lambda _, a, b: a.slow(20.0),
    "refused commits": lambda stage, a, b: stage.refuse_commits("orders", a.partitions[0].number, 5),
    "silent store": lambda stage, a, b: stage.store.silent(5.0),
    "slow store": lambda stage, a, b: stage.store.slow(0.3),
    "store that refuses": lambda stage, a, b: stage.store.refuses(5.0),
}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("protocol", KAFKA)
def test_what_a_test_does_to_the_group_breaks_no_promise(protocol: Any, move: str) -> None:
    with ScriptedWorld(protocol=protocol) as stage:
        done = stage.effects("done")
        a, b = (stage.member(app_of(working(stage, done))) for _ in range(2))
        send(stage)
        stage.run(until=lambda: a.handling and b.handling)
        MOVES[move](stage, a, b)
        assert_all_well(stage, done)


def test_a_partition_goes_where_the_test_says(stage: ScriptedWorld) -> None:
    a, b = (stage.member(app_of(lambda _: None)) for _ in range(2))
    stage.run(until=lambda: len(a.partitions) == 2 and len(b.partitions) == 2)
    mine = a.partitions[0]
    a.revoke("orders", mine.number, to=b)
    stage.run(until=lambda: mine in b.partitions)
    a.assign("orders", mine.number)
    stage.run(until=lambda: mine in a.partitions)
    b.lose()
    stage.run(until=lambda: len(a.partitions) == 4)
    with pytest.raises(ValueError, match="b does not have orders-0: it has nothing"):
        b.revoke("orders", 0)


def test_a_crash_repeats_what_was_in_hand_and_the_assertion_can_be_told_so(stage: ScriptedWorld) -> None:
    done = stage.effects("done")

    def handle(record: Record) -> None:
        done.append(record.json()["id"])
        stage.sleep(1.0)

    a = stage.member(app_of(handle))
    stage.member(app_of(handle))
    send(stage)
    stage.run(until=lambda: a.handling)
    a.crash()
    stage.settle()
    stage.assert_once(done, except_in_hand=True)
    stage.assert_once(except_in_hand=True)
    stage.assert_once()  # of each only one call has ended well
    with pytest.raises(AssertionError, match=r"again at .* by b \(orders-\d@0\)") as failed:
        stage.assert_once(done)
    assert "a       crashes" in str(failed.value)


def test_an_app_without_claims_repeats_more_than_what_was_in_hand_and_is_caught(stage: ScriptedWorld) -> None:
    def make_app(source: Any, claims: Any) -> Holdfast:
        app = Holdfast(source, claims=None)
        app.handler("orders", name="handle")(lambda _: stage.sleep(0.1))
        return app

    a = stage.member(make_app)
    send(stage, partition=0)
    stage.run(until=lambda: sum(call.outcome == "done" for call in stage.book.calls) == 5)
    a.crash()
    a.restart()
    stage.settle()
    with pytest.raises(AssertionError, match=r"handled more than once: orders-0@0, .* \(of 12\)"):
        stage.assert_once(except_in_hand=True)


def test_who_was_crashed_or_stopped_is_started_again(stage: ScriptedWorld) -> None:
    done = stage.effects("done")
    a = stage.member(app_of(working(stage, done)))
    with pytest.raises(RuntimeError, match="a runs"):
        a.restart()
    send(stage)
    stage.run(until=lambda: a.handling)
    a.crash()
    a.restart()
    stage.run(for_s=30)
    a.stop()
    stage.run(until=lambda: not a.alive)
    a.restart()
    assert_all_well(stage, done)


def test_a_supervisor_starts_again_who_has_ended_by_an_error(stage: ScriptedWorld) -> None:
    fails = [True]

    def handle(record: Record) -> None:
        if fails and record.json()["id"] == 3:
            fails.clear()
            raise ConnectionError

    stage.member(app_of(handle, retry=Retry(attempts=1)), restart=True)
    send(stage)
    stage.settle()
    stage.assert_nothing_lost()


def test_a_world_that_does_not_come_to_rest_says_what_is_left(stage: ScriptedWorld) -> None:
    def handle(record: Record) -> None:
        if record.json()["id"] == 3:
            raise ConnectionError("no route")

    a = stage.member(app_of(handle, retry=Retry(attempts=1)))
    send(stage, 5, partition=0)
    with pytest.raises(AssertionError, match=r"a has ended with HandlerFailed.*orders-0: committed 3 of 5"):
        stage.settle(30)
    assert isinstance(a.error, HandlerFailed)


def test_a_failing_record_goes_to_the_dead_letters(stage: ScriptedWorld) -> None:
    def handle(record: Record) -> None:
        if record.json()["id"] == 3:
            raise ConnectionError("no route")

    stage.member(app_of(handle, dead_letter="orders.dlq", dead_letter_limit=DeadLetterLimit()))
    send(stage)
    stage.refuse_dead_letters()
    stage.run(for_s=20)
    assert stage.dead_letters == []
    stage.refuse_dead_letters(refuse=False)
    stage.settle()
    stage.assert_nothing_lost()
    stage.assert_dead_lettered(3, by="id")
    with pytest.raises(AssertionError, match="dead letters are 3, and not 4"):
        stage.assert_dead_lettered(4, by="id")


class Unprintable(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), BaseExceptionGroup("several", [KeyboardInterrupt()]), GeneratorExit(), Unprintable()],
    ids=type,
)
@pytest.mark.parametrize("is_async", [False, True])
def test_whatever_a_handler_raises_the_world_sees_its_end(
    stage: ScriptedWorld, error: BaseException, *, is_async: bool
) -> None:
    def plain(record: Record) -> None:
        raise error

    async def coroutine(record: Record) -> None:
        raise error

    stage.member(app_of(coroutine if is_async else plain, dead_letter="orders.dlq", retry=Retry(attempts=1)))
    send(stage, 1)
    stage.settle()
    stage.assert_dead_lettered(0, by="id")


@pytest.mark.parametrize("batch", [None, BatchOf(records=4)])
def test_coroutines_wait_in_virtual_time(stage: ScriptedWorld, batch: BatchOf | None) -> None:
    done = stage.effects("done")

    async def handle(given: Any) -> None:
        await asyncio.sleep(3.0)
        for record in [given] if batch is None else given:
            done.append(record.json()["id"])

    a, _ = (stage.member(app_of(handle, batch=batch)) for _ in range(2))
    send(stage)
    stage.run(until=lambda: a.handling)
    a.revoke()
    assert_all_well(stage, done)
    assert stage.now > 3


def test_batches_are_seen_record_by_record(stage: ScriptedWorld) -> None:
    done = stage.effects("done")

    def handle(records: list[Record]) -> None:
        stage.sleep(1.0)
        done.extend(record.json()["id"] for record in records)

    a, _ = (stage.member(app_of(handle, batch=BatchOf(records=5))) for _ in range(2))
    send(stage)
    stage.run(until=lambda: a.handling)
    a.revoke()
    assert_all_well(stage, done)


def test_a_reset_is_honoured_and_what_was_done_before_it_does_not_count(stage: ScriptedWorld) -> None:
    done = stage.effects("done")
    a = stage.member(app_of(working(stage, done), key=None))
    send(stage, 4, partition=0)
    stage.settle()
    with pytest.raises(RuntimeError, match="stop a"):
        stage.reset("orders", 0)
    a.stop()
    stage.run(until=lambda: not a.alive)
    stage.reset("orders", 0, 2)
    a.restart()
    stage.settle()
    assert [sorted(done[:4]), sorted(done[4:])] == [[0, 1, 2, 3], [2, 3]]  # four keys: each has an order of its own
    stage.assert_once(done)
    stage.assert_once()


def test_an_emptied_store_may_cost_repeats_and_no_records(stage: ScriptedWorld) -> None:
    done = stage.effects("done")
    a = stage.member(app_of(working(stage, done)))
    send(stage)
    stage.run(until=lambda: a.handling)
    stage.store.empty()
    stage.settle()
    stage.assert_nothing_lost(done, by="id")
    stage.assert_once(done, except_in_hand=True)
    stage.assert_committed()


def test_order_is_what_it_says(stage: ScriptedWorld) -> None:
    def handle(record: Record) -> None:
        stage.sleep(1.0 if record.offset == 0 else 0.1)

    stage.member(app_of(handle, Settings(workers=4, ordering="none"), key=None))
    send(stage)
    stage.settle()
    with pytest.raises(AssertionError, match=r"orders-\d@\d was handled before orders-\d@\d, which was sent before it"):
        stage.assert_order()


def test_committed_is_what_it_says(stage: ScriptedWorld) -> None:
    stage.member(app_of(lambda _: None))
    send(stage, 4, partition=1)
    stage.run(until=lambda: stage.members[0].partitions)
    for number in (None, 1):
        with pytest.raises(AssertionError, match=r"not all is committed: orders-1: committed 0 of 4"):
            stage.assert_committed("orders", number)
    stage.settle()
    stage.assert_committed("orders", 1, 4)
    assert stage.committed("orders", 1) == 4
    with pytest.raises(AssertionError, match="orders-1: committed is 4, and not 3"):
        stage.assert_committed("orders", 1, 3)


def test_a_promise_about_nothing_is_none(stage: ScriptedWorld) -> None:
    stage.member(app_of(lambda _: None))
    send(stage)
    stage.settle()
    with pytest.raises(AssertionError, match="charged: nothing at all"):
        stage.assert_once(stage.effects("charged"))
    with pytest.raises(TypeError, match="by='order_id'"):
        stage.assert_nothing_lost([])


def test_what_is_sent_where_nobody_reads_is_lost(stage: ScriptedWorld) -> None:
    stage.member(app_of(lambda _: None))
    stage.produce("order", {"order_id": 1})
    stage.settle()
    with pytest.raises(AssertionError, match="no member has a handler for order:"):
        stage.assert_nothing_lost()


def test_a_world_is_not_at_rest_before_its_members_have_joined(stage: ScriptedWorld) -> None:
    stage.store.silent(20)
    stage.member(app_of(lambda _: None))
    send(stage)
    stage.settle()
    stage.assert_nothing_lost()


def test_the_same_test_plays_the_same_story_and_another_seed_another_one() -> None:
    def story(seed: int) -> str:
        with ScriptedWorld(seed) as stage:
            a, _ = (stage.member(app_of(working(stage, []))) for _ in range(2))
            send(stage)
            stage.run(until=lambda: a.handling)
            a.crash()
            stage.settle()
            return stage.story

    assert story(3) == story(3) != story(4)


def test_misuse_is_told_in_a_sentence(stage: ScriptedWorld) -> None:
    with pytest.raises(RuntimeError, match=r"a test says world\.run"):
        stage.sleep(1)
    with pytest.raises(TypeError, match="say one of both"):
        stage.run()
    with pytest.raises(TypeError, match="is to return the Holdfast"):
        stage.member(lambda source, claims: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(SettingError):
        stage.member(app_of(lambda _: None, Settings(workers=4), timeout_s=-1))
    with pytest.raises(TypeError, match="the world runs it"):
        stage.member(lambda source, claims: app_of(lambda _: None)(source, claims).run())  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="its second argument to Holdfast as claims"):
        stage.member(lambda source, _: app_of(lambda _: None)(source, MemoryClaims()))
    with pytest.raises(ValueError, match="use one of eager, cooperative, consumer"):
        ScriptedWorld(protocol="raft")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no records"):
        simulate(app_of(lambda _: None), [])
    with pytest.raises(AssertionError, match="after 5 s that was not so"):
        stage.run(until=lambda: False, within_s=5)

    async def inside() -> None:
        stage.run(for_s=1)

    with pytest.raises(RuntimeError, match="let the test be a plain function"):
        asyncio.run(inside())


def test_a_topic_has_as_many_partitions_as_the_test_says(stage: ScriptedWorld) -> None:
    stage.topic("orders", 7)
    a = stage.member(app_of(lambda _: None))
    stage.run(until=lambda: len(a.partitions) == 7)
    assert a.partitions[0] == Partition("orders", 0)


ORDERS = [make_record({"id": each}, topic="orders", key=f"k{each % 5}") for each in range(15)]


def test_simulate_finds_nothing_where_nothing_is_wrong() -> None:
    searched = simulate(app_of(lambda _: None), ORDERS, seeds=5)
    assert searched.worlds == 5
    assert searched.calls >= 5 * 15


def test_simulate_finds_who_charges_again_after_a_crash_and_makes_it_small() -> None:
    done: list[Any] = []

    def begin(stage: ScriptedWorld) -> None:
        done[:] = [stage.effects("charged")]

    def check(stage: ScriptedWorld) -> None:
        stage.assert_once(done[0])

    make_app = app_of(lambda record: done[0].append(record.json()["id"]))
    with pytest.raises(AssertionError, match=r"charged more than once: \d") as failed:
        simulate(make_app, ORDERS[:6], begin=begin, check=check)
    said = str(failed.value)
    assert re.search(r"It needs [12] records and these faults:\n  at .*: (crash|stall)", said)
    seed = int(said.rpartition("seeds=[")[2].split("]", maxsplit=1)[0])
    with pytest.raises(AssertionError, match=f"seed {seed}: charged"):
        simulate(make_app, ORDERS[:6], seeds=[seed], begin=begin, check=check)
