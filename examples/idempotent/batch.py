"""A list of orders, some of them twice, one of them bad: as from `consumer.consume(500)` or a page of an API.

python examples/idempotent/batch.py --redis redis://localhost:6379/0
"""

from __future__ import annotations

import argparse
import uuid

from holdfast import BatchFailed, RedisClaims, Skipped, idempotent


def main() -> None:
    """Load three pages that overlap."""
    parser = argparse.ArgumentParser(description="Each order is loaded once.")
    parser.add_argument("--redis", default="redis://localhost:6379/0")
    claims = RedisClaims.from_url(parser.parse_args().redis, namespace=f"example-{uuid.uuid4()}")
    loaded: list[int] = []

    @idempotent(claims, key="id", name="orders.load", batch=True, on_done="marker")
    def load(orders: list[dict[str, int]]) -> None:
        bad = {position: ValueError("no amount") for position, order in enumerate(orders) if "amount" not in order}
        loaded.extend(order["id"] for position, order in enumerate(orders) if position not in bad)
        if bad:
            raise BatchFailed(bad)  # these stay free, the others are done

    first = [{"id": n, "amount": 5} for n in (1, 2, 1, 3)]
    print("1, 2, 1, 3:", results := load(first))
    if results != [None, None, Skipped.DONE, None]:
        raise SystemExit("a duplicate in the batch was not found")
    try:
        load([{"id": 3, "amount": 5}, {"id": 4}, {"id": 5, "amount": 5}])
    except BatchFailed as error:
        print("3, 4 (bad), 5:", error.failures)
    print("4 (mended), 5:", results := load([{"id": 4, "amount": 5}, {"id": 5, "amount": 5}]))
    claims.close()
    if sorted(loaded) != [1, 2, 3, 4, 5] or results != [None, Skipped.DONE]:
        raise SystemExit("an order was loaded twice, or never")
    print("each order was loaded once")


if __name__ == "__main__":
    main()
