"""A service that charges orders, and can be tested: what makes its app takes the source and the claims.

To run it:

    python -m examples.testing.billing
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Protocol

from examples.shop import make_topics, parser, say
from holdfast import Holdfast, Record, RedisClaims, Retry, Settings, Unretriable
from holdfast.adapters.kafka import KafkaSource

if TYPE_CHECKING:
    from collections.abc import Callable


class Declined(Exception):
    """The customer's bank says no, and will say so again."""


class Gateway(Protocol):
    """Who takes the money."""

    def charge(self, order_id: str, idempotency_key: str) -> None:
        """Raises Declined, or ConnectionError."""
        ...


def make_app(source: Any, claims: Any, gateway: Gateway, topic: str = "orders") -> Holdfast:  # noqa: ANN401
    """The whole consumer, and nothing that knows whether it is a test."""
    app = Holdfast(source, claims=claims, settings=Settings(workers=4))

    @app.handler(topic, key="order_id", retry=Retry(attempts=3), dead_letter=f"{topic}.dlq", name="bill")
    def bill(record: Record) -> None:
        order_id = record.json()["order_id"]
        try:
            # The key is for the one case that holdfast cannot close: a crash after the charge and before the mark.
            gateway.charge(order_id, idempotency_key=order_id)
        except Declined as error:
            raise Unretriable(f"order {order_id} is declined") from error

    return app


class SlowBank:
    """A gateway that knows a key again. It takes its time; a test says how by `sleep`."""

    def __init__(self, charged: list[str], sleep: Callable[[float], object] = time.sleep) -> None:
        self.charged = charged
        self._sleep = sleep
        self._known: set[str] = set()

    def charge(self, order_id: str, idempotency_key: str) -> None:
        """As `Gateway.charge`."""
        self._sleep(0.2)
        if idempotency_key not in self._known:
            self._known.add(idempotency_key)
            self.charged.append(order_id)
            say(f"charged {order_id}")
        self._sleep(0.1)


def main() -> None:
    """Consume until SIGTERM or Ctrl-C."""
    asked = parser(__doc__).parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    make_topics(asked.bootstrap, asked.topic, f"{asked.topic}.dlq")
    source = KafkaSource({"bootstrap.servers": asked.bootstrap, "group.id": "billing"}, assignment="sticky")
    make_app(source, RedisClaims.from_url(asked.redis), SlowBank([]), asked.topic).run()


if __name__ == "__main__":
    main()
