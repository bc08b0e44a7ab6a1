"""A table of PostgreSQL that refuses a former owner: it keeps the highest fence of each partition.

The check and the write are one transaction, so nobody else writes between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.fences.connections import Connections

if TYPE_CHECKING:
    import psycopg

    from holdfast import Record

_TABLES = """
CREATE TABLE IF NOT EXISTS fences (partition text PRIMARY KEY, epoch bigint NOT NULL);
CREATE TABLE IF NOT EXISTS orders (order_id text PRIMARY KEY, customer text NOT NULL, cents bigint NOT NULL);
"""
#: One statement looks and raises. Its lock on the row is held until the transaction ends, so a new owner waits for the
#: write that came before its own.
_HOLD = """
INSERT INTO fences AS held VALUES (%s, %s)
ON CONFLICT (partition) DO UPDATE SET epoch = excluded.epoch WHERE held.epoch <= excluded.epoch
"""
_UPSERT = """
INSERT INTO orders VALUES (%s, %s, %s)
ON CONFLICT (order_id) DO UPDATE SET customer = excluded.customer, cents = excluded.cents
"""


class FormerOwner(Exception):
    """Another process owns the partition now, and has written."""


class FencedOrders:
    """Orders by their id, the last write wins; and no write of a former owner is the last. Threads may share it.

    Args:
        database: the URL of a PostgreSQL.
        idle_s: a process that is frozen inside its transaction holds the fence's lock for so long at most. Then the
            server ends the transaction, and the new owner goes on.
    """

    def __init__(self, database: str, *, idle_s: float = 10.0) -> None:
        self._connections = Connections(database, _TABLES, idle_s=idle_s)

    def write(self, record: Record) -> None:
        """Write one order.

        Raises:
            FormerOwner: a later owner of the partition has written.
            psycopg.Error: no connection, or the server has ended the transaction.
        """
        with self._connections.transaction() as transaction:
            self.hold(transaction, str(record.partition), record.fence.epoch)
            order = record.json()
            transaction.execute(_UPSERT, (order["order_id"], order["customer"], order["cents"]))

    def hold(self, transaction: psycopg.Connection, partition: str, epoch: int) -> None:
        """Raise the partition's fence, or refuse. Raises FormerOwner, ValueError."""
        if epoch == 0:
            raise ValueError("there is no fence: this needs a store, and a source that owns partitions")
        if transaction.execute(_HOLD, (partition, epoch)).rowcount == 0:
            raise FormerOwner(f"{partition}: epoch {epoch}, but a later owner has written")

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()
