"""examples/rocketmq: each order is billed once."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.examples.rocketmq_bench import RocketMQShop

if TYPE_CHECKING:
    from tests.harness.servers.rocketmq import RocketMQServer

_ORDERS = "examples.rocketmq.orders"


def test_what_the_shop_sends_twice_is_billed_once_and_the_next_start_goes_on(
    rocketmq: RocketMQServer, redis_url: str
) -> None:
    shop = RocketMQShop(rocketmq, redis_url)
    [said] = shop.run("examples.rocketmq.shop", 12, "--twice")
    prefix = said.split()[1].removesuffix("-1")
    with shop.running(_ORDERS) as first:
        first.until(lambda: len(first.billed) >= 12)
        assert first.end(signal.SIGINT) == 0, first.errors
    assert sorted(first.billed) == sorted(f"{prefix}-{number}" for number in range(1, 13))
    shop.send("d")
    with shop.running(_ORDERS) as second:
        second.until(lambda: bool(second.billed))
        assert second.end() == 0, second.errors
    assert second.billed == ["d"]
