"""A database that can tell: what came before is not counted twice, and a former owner of a partition is refused."""

from __future__ import annotations

import json
import sqlite3
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from holdfast import Unretriable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (order_id TEXT PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS revenue (customer TEXT PRIMARY KEY, cents INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS owners (partition TEXT PRIMARY KEY, epoch INTEGER NOT NULL);
"""


class FormerOwner(Unretriable):
    """Another process owns the partition now: what this one still wants to write, it has no right to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One row."""

    order_id: str
    customer: str
    cents: int

    @classmethod
    def read(cls, value: bytes | None) -> Self:
        """From a record's value. Raises Unretriable: it is no order, and never will be."""
        try:
            said = json.loads(value or b"")
            return cls(order_id=said["order_id"], customer=said["customer"], cents=int(said["cents"]))
        except (ValueError, KeyError, TypeError) as error:
            raise Unretriable(f"this is no order: {error!r}") from error


class Sink:
    """A SQLite file. Threads may share it; other processes may have the same file open.

    Args:
        path: made where it is missing.
    """

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=30.0, isolation_level=None, check_same_thread=False)
        self._one_at_a_time = threading.Lock()
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.executescript(_SCHEMA)

    def write(self, partition: str, epoch: int, orders: Iterable[Order]) -> int:
        """Write orders that came from one partition, all or none; returns how many were new.

        Raises:
            FormerOwner: a later owner of the partition has written already.
        """
        with self._one_at_a_time, self._db:  # commits at the end of the block, or takes all back
            self._db.execute("BEGIN IMMEDIATE")  # nobody else writes between the look and the write
            self._hold(partition, epoch)
            return sum(self._add(order) for order in orders)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _hold(self, partition: str, epoch: int) -> None:
        """The epoch grows with each change of ownership: who comes with a lower one than the last has been replaced."""
        held = self._db.execute("SELECT epoch FROM owners WHERE partition = ?", (partition,)).fetchone()
        if held is not None and epoch < held[0]:
            raise FormerOwner(f"{partition}: epoch {epoch}, but {held[0]} has written already")
        self._db.execute("INSERT OR REPLACE INTO owners VALUES (?, ?)", (partition, epoch))

    def _add(self, order: Order) -> bool:
        """A crash between this commit and holdfast's mark brings the order again: the primary key knows it."""
        row = (order.order_id, order.customer, order.cents)
        if self._db.execute("INSERT INTO orders VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row).rowcount == 0:
            return False
        self._db.execute(
            "INSERT INTO revenue VALUES (?, ?) ON CONFLICT (customer) DO UPDATE SET cents = cents + excluded.cents",
            (order.customer, order.cents),
        )
        return True
