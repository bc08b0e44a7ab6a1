"""Handlers with `value=` in a scripted world: records are decoded there as by a real app."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchOf, Holdfast, Settings, make_record
from holdfast.errors import RecordUnreadable
from holdfast.testing import ScriptedWorld, simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast import Record
    from holdfast.testing.scripted.effects import Effects
    from holdfast.testing.scripted.member import MakeApp


@dataclass
class Order:
    id: int


def plain(done: Any) -> Callable[..., Any]:
    def handle(order: Order, record: Record) -> None:
        done.append(order.id)

    return handle


def coroutine(done: Any) -> Callable[..., Any]:
    async def handle(order: Order) -> None:
        done.append(order.id)

    return handle


def batch(done: Any) -> Callable[..., Any]:
    def handle(orders: list[Order]) -> None:
        for each in orders:
            done.append(each.id)

    return handle


def batch_coroutine(done: Any) -> Callable[..., Any]:
    async def handle(orders: list[Order]) -> None:
        for each in orders:
            done.append(each.id)

    return handle


KINDS = [plain, coroutine, batch, batch_coroutine]


def app_of(kind: Callable[[Any], Callable[..., Any]], done: Any, **options: Any) -> MakeApp:
    options = {"dead_letter": "letters", "batch": BatchOf(records=3) if "batch" in kind.__name__ else None, **options}

    def make_app(source: Any, claims: Any) -> Holdfast:
        app = Holdfast(source, claims=claims, settings=Settings(workers=4))
        app.handler("orders", name="handle", value=Order, **options)(kind(done))
        return app

    return make_app


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_decoded_is_a_letter_and_a_move_repeats_nothing(kind: Any) -> None:
    with ScriptedWorld() as world:
        done: Effects = world.effects("done")
        a = world.member(app_of(kind, done), "a")
        world.run(until=lambda: a.partitions)
        for number in range(12):
            world.produce("orders", b"\xff raw" if number == 5 else {"id": number}, key=f"k{number % 3}")
        world.member(app_of(kind, done), "b")
        world.run(until=lambda: done)
        a.revoke()
        world.settle()
        [letter] = world.dead_letters
        assert letter.record.value == b"\xff raw"
        assert isinstance(letter.reason, RecordUnreadable)
        assert sorted(done) == [number for number in range(12) if number != 5]
        world.assert_once(done)
        world.assert_nothing_lost()
        world.assert_order()
        world.assert_committed()


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_worlds_play_them(kind: Any) -> None:
    def check(world: ScriptedWorld) -> None:
        world.assert_nothing_lost()
        world.assert_dead_lettered(7, by=lambda record: 7 if record.value == b"?" else 0)

    records = [make_record(b"?" if number == 7 else {"id": number}, topic="orders") for number in range(12)]
    simulate(app_of(kind, []), records, seeds=range(3), check=check)
