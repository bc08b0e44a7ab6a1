"""The same work with holdfast."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from examples.lab.member import Till, assignment_from_command_line
from holdfast import Holdfast, RedisClaims, Settings
from holdfast.adapters.kafka import KafkaSource

if TYPE_CHECKING:
    from holdfast.records import Record


def main() -> None:
    """Consume until SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    assignment = assignment_from_command_line()
    till = Till(assignment)
    app = Holdfast(
        KafkaSource(assignment.client_configuration(), assignment="keep"),
        claims=RedisClaims.from_url(assignment.redis_url, lease_s=2.0),
        # Less than usual, as all times here: a drain has to end within max.poll.interval.ms (4 s here, else 5 min).
        settings=Settings(workers=assignment.workers, ordering="key", drain_timeout_s=1.5),
        audit=assignment.audit(),
    )

    @app.handler(assignment.topic, key="order_id")
    def charge(record: Record) -> None:
        key = record.key.decode() if record.key is not None else ""
        till.charge(record.partition.number, record.offset, key)

    app.run()


if __name__ == "__main__":
    main()
