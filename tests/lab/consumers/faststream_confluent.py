"""FastStream's broker on confluent-kafka, as in its documentation: an `async def` under a subscriber. With the last
word "ack" by the policy that acknowledges when the handler has ended; without it as by default."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker

from tests.lab.consumers.member import HEARTBEAT_MS, MAX_POLL_INTERVAL_MS, SESSION_MS, Work, told


def main() -> None:
    """Consume until SIGTERM."""
    member = told()
    work = Work(member)
    # Without its log, which has two lines a record, and without pydantic: no other consumer here has either.
    broker = KafkaBroker(member.bootstrap, client_id=member.name, apply_types=False, logger=None)
    policy: dict[str, Any] = {"ack_policy": AckPolicy.ACK} if "ack" in sys.argv else {}

    @broker.subscriber(  # type: ignore[untyped-decorator]  # FastStream is in another environment than mypy
        member.topic,
        group_id=member.group,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
        decoder=_whole,
        **policy,
    )
    async def handle(message: Any) -> None:
        raw = message.raw_message
        await work.do_async(raw.partition(), raw.offset(), raw.value())

    asyncio.run(FastStream(broker, logger=None).run())


async def _whole(message: Any) -> Any:
    """The handler is given the message, for its place; with types it would ask for a KafkaMessage."""
    return message


if __name__ == "__main__":
    main()
