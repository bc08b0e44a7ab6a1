"""FastStream's broker on confluent-kafka, without pydantic (`apply_types=False`): no other consumer here has types. It
reads the JSON of each record all the same.

python -m tests.benchmarks.peers.faststream_confluent BOOTSTRAP TOPIC GROUP RECORDS [ack | batch]

Without a last word as it is by default, which is at most once.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker

from tests.benchmarks.peers.told import told

_BATCH = 500


def main(bootstrap: str, topic: str, group: str, records: int, how: str = "") -> None:
    """Consume that many records of a topic, and end the process."""
    # Its log has a line at the start and one at the end of each call of a handler, for developers.
    broker = KafkaBroker(bootstrap, apply_types=False, logger=None)
    count = told(records)
    more: dict[str, Any] = {"ack_policy": AckPolicy.ACK} if how else {}

    async def one(body: object) -> None:
        count.one(body)

    async def many(bodies: list[object]) -> None:
        count.many(bodies)

    if how == "batch":
        more |= {"batch": True, "max_records": _BATCH}
    handle = many if how == "batch" else one
    broker.subscriber(topic, group_id=group, auto_offset_reset="earliest", **more)(handle)
    asyncio.run(FastStream(broker, logger=None).run())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), *sys.argv[5:])
