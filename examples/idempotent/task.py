"""A task that several workers get at once, and that fails the first time: as with Celery, RQ or a cron job.

python examples/idempotent/task.py --redis redis://localhost:6379/0
"""

from __future__ import annotations

import argparse
import uuid
from concurrent.futures import ThreadPoolExecutor

from holdfast import RedisClaims, idempotent


def main() -> None:
    """Charge each of 20 orders once, though four workers are given all of them."""
    parser = argparse.ArgumentParser(description="Each order is charged once.")
    parser.add_argument("--redis", default="redis://localhost:6379/0")
    claims = RedisClaims.from_url(parser.parse_args().redis, namespace=f"example-{uuid.uuid4()}")
    charged: list[int] = []
    tried: set[int] = set()

    @idempotent(claims, key="order_id", name="billing.charge")
    def charge(order_id: int, amount: int) -> dict[str, int]:
        if order_id == 7 and order_id not in tried:
            tried.add(order_id)
            raise ConnectionError("the bank does not answer")  # the key is free again
        charged.append(order_id)
        return {"order": order_id, "charged": amount}

    def worker(_: int) -> list[dict[str, int]]:
        results = []
        for order_id in range(20):
            try:
                results.append(charge(order_id, amount=5))
            except ConnectionError:
                results.append(charge(order_id, amount=5))  # as a task queue tries again
        return results

    with ThreadPoolExecutor(4) as workers:
        results = list(workers.map(worker, range(4)))
    claims.close()
    print(f"4 workers got 20 orders each; charged: {len(charged)} times")
    if sorted(charged) != list(range(20)) or any(each != results[0] for each in results):
        raise SystemExit("an order was charged twice, or never")
    print("each order was charged once, and each worker got its result")


if __name__ == "__main__":
    main()
