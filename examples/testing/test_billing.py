"""What the billing service is held to, without Kafka and without Redis.

To run it, after `pip install 'holdfast-mq[testing,kafka]'`:

    python -m pytest examples/testing
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from examples.testing.billing import Declined, SlowBank
from examples.testing.billing import make_app as make_billing
from holdfast.testing import Effects, Member, ScriptedWorld, make_record, simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast import Holdfast

    MakeApp = Callable[[Any, Any], Holdfast]
    Start = Callable[[], Member]


@pytest.fixture
def charged(world: ScriptedWorld) -> Effects:
    """What customers have paid."""
    return world.effects("charged")


@pytest.fixture
def make_app(world: ScriptedWorld, charged: Effects) -> MakeApp:
    """What `member()` starts: the service's own factory, with a bank whose time is the world's."""
    bank = SlowBank(charged, sleep=world.sleep)
    return lambda source, claims: make_billing(source, claims, bank)


@pytest.fixture
def orders(world: ScriptedWorld) -> None:
    """Twenty orders of five customers."""
    for number in range(20):
        world.produce("orders", {"order_id": f"o-{number}"}, key=f"customer-{number % 5}")


@pytest.mark.usefixtures("orders")
def test_a_deployment_charges_nobody_twice(world: ScriptedWorld, member: Start, charged: Effects) -> None:
    a, _b = member(), member()
    world.run(until=lambda: a.handling)
    member()  # the new version starts
    world.run(for_s=0.5)
    a.stop()  # and the old one is asked to leave
    world.settle()
    world.assert_once(charged)
    world.assert_nothing_lost(charged, by="order_id")
    world.assert_order()
    world.assert_committed()


@pytest.mark.usefixtures("orders")
def test_a_partition_that_moves_in_the_midst_of_a_charge_is_charged_once(
    world: ScriptedWorld, member: Start, charged: Effects
) -> None:
    a, _b = member(), member()
    world.run(until=lambda: a.handling)
    a.revoke()
    world.settle()
    world.assert_once(charged)
    world.assert_nothing_lost(charged, by="order_id")


@pytest.mark.usefixtures("orders")
def test_a_crash_in_the_midst_of_a_charge_is_made_good_by_the_banks_key(
    world: ScriptedWorld, member: Start, charged: Effects
) -> None:
    a, _b = member(), member()
    world.run(until=lambda: a.handling)
    world.run(for_s=0.25)  # the bank has the money, and the handler has not ended
    a.crash()
    world.settle()
    world.assert_once(charged)
    world.assert_nothing_lost(charged, by="order_id")


@pytest.mark.usefixtures("orders")
def test_a_process_that_was_frozen_charges_nobody_again_when_it_wakes_up(
    world: ScriptedWorld, member: Start, charged: Effects
) -> None:
    a, _b = member(), member()
    world.run(until=lambda: a.handling)
    a.zombie()
    world.settle()
    world.assert_once(charged)
    world.assert_nothing_lost(charged, by="order_id")


@pytest.mark.usefixtures("orders")
def test_while_redis_is_away_nothing_is_charged_and_then_everything(
    world: ScriptedWorld, member: Start, charged: Effects
) -> None:
    member()
    world.run(until=lambda: len(charged) == 3)
    world.store.silent(60)
    world.run(for_s=30)
    before = len(charged)
    world.run(for_s=25)
    assert len(charged) == before
    world.settle()
    world.assert_once(charged)
    world.assert_nothing_lost(charged, by="order_id")


def test_what_the_shop_sends_twice_is_charged_once(world: ScriptedWorld, member: Start, charged: Effects) -> None:
    member()
    for _ in range(2):
        world.produce("orders", {"order_id": "o-1"}, key="customer-1")
    world.settle()
    assert charged == ["o-1"]


def test_a_declined_order_is_a_dead_letter_and_keeps_nobody_waiting(world: ScriptedWorld, charged: Effects) -> None:
    class Strict(SlowBank):
        def charge(self, order_id: str, idempotency_key: str) -> None:
            if order_id == "o-1":
                raise Declined
            super().charge(order_id, idempotency_key)

    world.member(lambda source, claims: make_billing(source, claims, Strict(charged, sleep=world.sleep)))
    for number in range(3):
        world.produce("orders", {"order_id": f"o-{number}"}, key="customer-1")
    world.settle()
    assert charged == ["o-0", "o-2"]
    world.assert_dead_lettered("o-1", by="order_id")
    world.assert_nothing_lost(charged, by="order_id")


def test_in_any_world_and_whatever_goes_wrong_nobody_is_charged_twice() -> None:
    bank = SlowBank([])

    def begin(world: ScriptedWorld) -> None:
        bank.__init__(world.effects("charged"), sleep=world.sleep)  # type: ignore[misc]

    def check(world: ScriptedWorld) -> None:
        world.assert_once(bank.charged)
        world.assert_nothing_lost(bank.charged, by="order_id")

    orders = [make_record({"order_id": f"o-{each}"}, topic="orders", key=f"customer-{each % 7}") for each in range(30)]
    # At night: seeds=10_000.
    simulate(lambda source, claims: make_billing(source, claims, bank), orders, seeds=10, begin=begin, check=check)
