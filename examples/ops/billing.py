"""The consumer as it is deployed. What differs from place to place is in the environment.

To run it:

    KAFKA=localhost:9092 REDIS=redis://localhost:6379/0 python -m examples.ops.billing
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from holdfast import Holdfast, Record, RedisClaims, Retry, Settings
from holdfast.adapters.kafka import KafkaSource
from holdfast.adapters.watching import serve

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The grace periods in kubernetes/statefulset.yaml and compose.yaml come of these times.
SETTINGS = Settings(workers=16, drain_timeout_s=10.0, linger_timeout_s=10.0)

_log = logging.getLogger("billing")


def make_app(environment: Mapping[str, str]) -> Holdfast:
    """The whole consumer; `run()` it. A pod that has a name of its own, as in a StatefulSet, is a static member."""
    topic = environment.get("TOPIC", "orders")
    app = Holdfast(
        KafkaSource(
            {"bootstrap.servers": environment["KAFKA"], "group.id": environment.get("GROUP", "billing")},
            assignment="sticky",
            static_id=environment.get("STATIC_ID"),
        ),
        claims=RedisClaims.from_url(environment["REDIS"]),
        settings=SETTINGS,
    )

    @app.handler(topic, key="order_id", retry=Retry(attempts=5), dead_letter=f"{topic}.dlq", name="bill")
    def bill(record: Record) -> None:
        _log.info("billed %s", record.json()["order_id"])

    return app


def main() -> None:
    """Consume until SIGTERM, and answer probes and Prometheus."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    app = make_app(os.environ)
    with serve(app, host=os.environ.get("SERVE_HOST", "127.0.0.1"), port=int(os.environ.get("SERVE_PORT", "9464"))):
        app.run()


if __name__ == "__main__":
    main()
