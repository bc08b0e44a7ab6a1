"""examples/quickstart: each order is billed once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.examples.bench import lines, stop

if TYPE_CHECKING:
    from tests.examples.bench import Shop

_QUICKSTART = "examples.quickstart.orders"


def test_what_the_shop_sends_twice_is_billed_once_and_a_second_start_bills_nothing(shop: Shop) -> None:
    [said] = shop.run("examples.shop", 12, "--twice")
    prefix = said.split()[1].removesuffix("-1")
    billed = [line.split()[1] for line in shop.run(_QUICKSTART, "--once")]
    assert sorted(billed) == sorted(f"{prefix}-{number}" for number in range(1, 13))
    assert shop.run(_QUICKSTART, "--once") == []
    assert sum(shop.kafka.committed("billing", shop.topic).values()) == 24


def test_ctrl_c_ends_it_in_good_order_and_the_next_start_goes_on(shop: Shop) -> None:
    shop.send("a", "b", "c")
    with shop.running(_QUICKSTART) as process:
        assert sorted(line.split()[1] for line in lines(process, 3)) == ["a", "b", "c"]
        assert stop(process) == ""
    shop.send("d")
    assert [line.split()[1] for line in shop.run(_QUICKSTART, "--once")] == ["d"]
