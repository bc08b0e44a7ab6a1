"""examples/transactions: each order has one invoice, also if the process is killed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.examples.bench import Shop


def test_each_order_becomes_one_invoice(shop: Shop) -> None:
    ids = [f"order-{number}" for number in range(12)]
    shop.send(*ids[:7])
    shop.run("examples.transactions.invoices", "--once")
    shop.send(*ids[7:])
    shop.run("examples.transactions.invoices", "--once")
    lines = shop.run("examples.transactions.invoices", "--read")
    assert sorted(json.loads(line)["invoice"] for line in lines) == sorted(ids)
