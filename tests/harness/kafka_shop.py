"""An app for `holdfast run` on a real Kafka and a real Redis. What its handlers do stands in the file SHOP_LEDGER."""

from __future__ import annotations

import os

from holdfast import Holdfast, Record, RedisClaims, Settings
from holdfast.adapters.kafka import KafkaSource
from tests.harness.memory_shop import note

#: Of the group and of the topic.
NAME, BOOTSTRAP, REDIS = "SHOP_NAME", "SHOP_BOOTSTRAP", "SHOP_REDIS"


def make_app() -> Holdfast:
    """A static member by the classic protocol: who is killed is let in again at once."""
    conf = {
        "bootstrap.servers": os.environ[BOOTSTRAP],
        "group.id": os.environ[NAME],
        "session.timeout.ms": 20_000,
        "partition.assignment.strategy": "cooperative-sticky",
    }
    app = Holdfast(
        KafkaSource(conf, assignment="keep"),
        claims=RedisClaims.from_url(os.environ[REDIS], lease_s=3.0),
        settings=Settings(workers=4),
    )

    @app.handler(os.environ[NAME], name="bill")
    def bill(record: Record) -> None:
        where = f"{record.partition.number}@{record.offset}"
        note(f"begins {where}")
        note(f"billed {where}")

    return app
