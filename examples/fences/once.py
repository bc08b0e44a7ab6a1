"""A table of PostgreSQL that knows what it has: "this record is done" is in the transaction of the record's effect.

No crash comes between the two, so the effect happens once, whatever happens to processes, brokers and Redis. The price
is a row for each record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.fences.connections import Connections

if TYPE_CHECKING:
    from holdfast import Record

_TABLES = """
CREATE TABLE IF NOT EXISTS done (
    partition text, log_offset bigint, sent_ms bigint, at timestamptz DEFAULT now(),
    PRIMARY KEY (partition, log_offset, sent_ms)
);
CREATE TABLE IF NOT EXISTS revenue (customer text PRIMARY KEY, cents bigint NOT NULL);
"""
_DONE = "INSERT INTO done VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
#: An effect that is wrong if it happens twice.
_ADD = """
INSERT INTO revenue AS old VALUES (%s, %s) ON CONFLICT (customer) DO UPDATE SET cents = old.cents + excluded.cents
"""


class RevenueOnce:
    """Adds up what customers pay. Threads may share it.

    Args:
        database: the URL of a PostgreSQL.
        idle_s: as of `FencedOrders`: here another process waits for the row of the very record.
    """

    def __init__(self, database: str, *, idle_s: float = 10.0) -> None:
        self._connections = Connections(database, _TABLES, idle_s=idle_s)

    def add(self, record: Record) -> bool:
        """Add one order. False: it was added before. Raises psycopg.Error."""
        with self._connections.transaction() as transaction:
            # With the time of the message: a topic that is deleted and made again has the same offsets once more.
            place = (str(record.partition), record.offset, record.timestamp_ms)
            if transaction.execute(_DONE, place).rowcount == 0:
                return False
            order = record.json()
            transaction.execute(_ADD, (order["customer"], order["cents"]))
            return True

    def replay(self, partition: str, first: int) -> None:
        """Forget what is done from that offset on: before a group is reset to it, while no member runs."""
        with self._connections.transaction() as transaction:
            transaction.execute("DELETE FROM done WHERE partition = %s AND log_offset >= %s", (partition, first))

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()
