"""examples/web: a web application bills each order once, through a rebalance and a SIGTERM, while it answers."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
import redis

from tests.examples.bench import lines
from tests.harness.processes import free_ports
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from tests.examples.bench import Shop


def served(port: int, path: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=PATIENCE_S) as answer:
            found: dict[str, Any] = json.load(answer)
    except urllib.error.URLError:  # it does not serve yet
        return {"partitions": 0}
    return found


@pytest.mark.parametrize(
    "module",
    [
        "service",
        pytest.param("starlette_service", marks=pytest.mark.full),
        pytest.param("aiohttp_service", marks=pytest.mark.full),
    ],
)
def test_each_order_is_billed_once_while_services_come_and_go(shop: Shop, module: str) -> None:
    ids = [f"order-{number}" for number in range(300)]
    pool, ports = redis.Redis.from_url(shop.redis_url, decode_responses=True), free_ports(2)

    def bills() -> list[int]:
        return [int(each) for each in pool.mget([f"{shop.topic}:billed:{one}" for one in ids]) if each]

    with shop.running(f"examples.web.{module}", "--port", ports[0]) as first:
        shop.send(*ids[:100])
        assert lines(first, 1)[0].startswith("billed ")
        with shop.running(f"examples.web.{module}", "--port", ports[1]) as second:
            until(lambda: served(ports[1], "ready")["partitions"], "the second one gets nothing")
            shop.send(*ids[100:200])
            assert lines(second, 1)[0].startswith("billed ")
            assert served(ports[1], "orders/order-0") == {"bills": 1}
            first.send_signal(signal.SIGTERM)
            shop.send(*ids[200:])
            first.communicate(timeout=PATIENCE_S)
            assert first.returncode in (0, -signal.SIGTERM)  # newer uvicorns end by the signal
            until(lambda: len(bills()) == len(ids), "not all orders are billed")
            second.send_signal(signal.SIGTERM)
            second.communicate(timeout=PATIENCE_S)
    assert bills() == [1] * len(ids)
