"""holdfast, as in its README, with positions in Redis."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast import Holdfast, RedisClaims, Settings
from holdfast.adapters.kafka import KafkaSource
from tests.lab.consumers.member import MAX_POLL_INTERVAL_MS, SESSION_MS, Told, Work, told

if TYPE_CHECKING:
    from holdfast.records import Record


def source(member: Told) -> KafkaSource:
    """What everybody is told, and the assignment that the README says."""
    return KafkaSource(member.classic, assignment="sticky")


#: A drain has to end within the poll interval, which is 6 s here and else five minutes.
SETTINGS = Settings(ordering="key", drain_timeout_s=MAX_POLL_INTERVAL_MS / 2000)


def main() -> None:
    """Consume until SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    member = told()
    work = Work(member)
    claims = RedisClaims.from_url(member.store, namespace=member.group, lease_s=SESSION_MS / 1000)
    app = Holdfast(source(member), claims=claims, settings=SETTINGS)

    @app.handler(member.topic)
    def handle(record: Record) -> None:
        work.do(record.partition.number, record.offset, record.value or b"", record.fence.epoch)

    app.run()


if __name__ == "__main__":
    main()
