"""Which librdkafka loses nothing. Pure."""

from __future__ import annotations

from holdfast.errors import ClientUnusable

#: As `libversion` has it: 2.13.2. Seen with 2.6.0 to 2.12.2, cooperative-sticky, a member that leaves: the client goes
#: on behind a record that nobody has got, and the gap looks like one of compaction. From 2.13.2 on it was not seen.
#: Probably librdkafka issue 4844: since 2.2.0 the position moves one record too far when a partition's end is told.
#: The engine finds such records and reads them again (`partition/holes.py`); `make compat` tries versions.
OLDEST = 0x020D0200


def check(version: str, number: int) -> None:
    """Raises ClientUnusable: records would be lost with this one."""
    if number < OLDEST:
        raise ClientUnusable(
            f"librdkafka {version} can skip a record when a group rebalances: pip install 'confluent-kafka>=2.13.2'"
        )
