"""The consumer: its handler uses Django's ORM in threads."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import close_old_connections, transaction

from examples.django_shop.billing.models import Bill
from examples.shop import say
from holdfast import Holdfast, Record, RedisClaims
from holdfast.adapters.kafka import KafkaSource

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def fresh_connections() -> Iterator[None]:
    """What Django does around each request, for a handler: outside of requests nobody else closes a connection that is
    broken or too old, and each thread has its own."""
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


def make_app() -> Holdfast:
    """The whole consumer; `run()` it."""
    topic = settings.ORDERS_TOPIC
    app = Holdfast(KafkaSource(settings.KAFKA, assignment="sticky"), claims=RedisClaims.from_url(settings.REDIS_URL))

    @app.handler(topic, key="order_id", dead_letter=f"{topic}.dlq", name="bill")
    @fresh_connections()
    def bill(record: Record) -> None:  # no `async def`: the ORM's connections belong to threads
        order = record.json()
        with transaction.atomic():
            Bill.objects.create(order_id=order["order_id"], cents=order["cents"])
        say(f"billed {order['order_id']}")

    return app
