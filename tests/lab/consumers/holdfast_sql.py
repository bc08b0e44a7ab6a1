"""holdfast with its positions in PostgreSQL, and effects that are in the same transaction."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast
from holdfast.adapters.sql import SqlPositions
from tests.lab.consumers.holdfast_redis import SETTINGS, source
from tests.lab.consumers.member import Work, told

if TYPE_CHECKING:
    from holdfast.records import Record


def main() -> None:
    """Consume until SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    member = told()
    work = Work(member)
    store = SqlPositions.from_url(member.store)
    app = Holdfast(source(member), claims=store, settings=SETTINGS)

    @app.handler(member.topic, transaction=store)
    def handle(record: Record, *, tx: Any) -> None:
        where = record.partition.number, record.offset
        work.do(*where, record.value or b"", record.fence.epoch)
        tx.execute("INSERT INTO lab_effect VALUES (%s, %s, %s)", (member.topic, *where))

    app.run()


if __name__ == "__main__":
    main()
