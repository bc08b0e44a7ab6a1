"""librdkafka before 2.13.2 can skip a record when a group rebalances, so it is refused. Pure.

- What the client does: a cooperative-sticky member leaves, and the client of another member goes on after a record
  that it has not returned. The gap looks like one of compaction. Probably librdkafka issue 4844: since 2.2.0 the
  position moves one record too far when the client reports the end of a partition.
- Seen with 2.6.0 to 2.12.2; not seen from 2.13.2 on.
- What holdfast does: it refuses older clients. It also finds such gaps and reads them again (`partition/holes.py`).
- It can go when pip resolves no older client: pyproject.toml asks for 2.13.2 already.
- Tests: tests/unit/test_kafka_client_version.py, tests/contracts/kafka/test_client_skips.py. See `make compat`.
"""

from __future__ import annotations

from holdfast.errors import ClientUnusable

#: 2.13.2 in the form of `libversion`.
OLDEST = 0x020D0200


def check(version: str, number: int) -> None:
    """Raises ClientUnusable: records would be lost with this version."""
    if number < OLDEST:
        raise ClientUnusable(
            f"librdkafka {version} can skip a record when a group rebalances: pip install 'confluent-kafka>=2.13.2'"
        )
