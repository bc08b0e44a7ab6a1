"""holdfast on RocketMQ, as in its README: it pulls, and keeps group and positions in Redis."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast import Holdfast, RedisClaims, RedisCoordinator
from holdfast.adapters.rocketmq import RocketMQSource
from tests.lab.consumers.holdfast_redis import SETTINGS
from tests.lab.consumers.member import SESSION_MS, Work, told

if TYPE_CHECKING:
    from holdfast.records import Record


def main() -> None:
    """Consume until SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    member = told()
    work = Work(member)
    store = RedisClaims.from_url(member.store, namespace=member.group, lease_s=SESSION_MS / 1000)
    source = RocketMQSource(
        member.bootstrap, member.group, coordinator=RedisCoordinator(store), consume_from_where="earliest"
    )
    app = Holdfast(source, claims=store, settings=SETTINGS)

    @app.handler(member.topic)
    def handle(record: Record) -> None:
        work.do(record.partition.number, record.offset, record.value or b"", record.fence.epoch)

    app.run()


if __name__ == "__main__":
    main()
