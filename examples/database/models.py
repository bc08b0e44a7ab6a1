"""The shop's tables, as SQLAlchemy maps them, and how orders come into them."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from sqlalchemy import update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from holdfast import Unretriable

if TYPE_CHECKING:
    from collections.abc import Sequence


class Base(DeclarativeBase):
    """All tables of the shop; holdfast's own are made by the store."""


class Order(Base):
    """One row an order."""

    __tablename__ = "orders"

    order_id: Mapped[str] = mapped_column(primary_key=True)
    customer: Mapped[str]
    cents: Mapped[int]

    @classmethod
    def read(cls, value: bytes | None) -> Order:
        """Read a record's value. Raises Unretriable: it is no order, and never will be."""
        try:
            said = json.loads(value or b"")
            return cls(order_id=said["order_id"], customer=said["customer"], cents=int(said["cents"]))
        except (ValueError, KeyError, TypeError) as error:
            raise Unretriable(f"this is no order: {error!r}") from error


class Revenue(Base):
    """What each customer has paid."""

    __tablename__ = "revenue"

    customer: Mapped[str] = mapped_column(primary_key=True)
    cents: Mapped[int]


def book(session: Session, orders: Sequence[Order]) -> None:
    """Add orders, and what they bring. The session's owner commits."""
    paid = Counter[str]()
    for order in orders:
        session.add(order)
        paid[order.customer] += order.cents
    # In one order: two transactions that change the same customers wait for each other, and in no circle.
    for customer, cents in sorted(paid.items()):
        more = update(Revenue).where(Revenue.customer == customer).values(cents=Revenue.cents + cents)
        if session.connection().execute(more).rowcount == 0:
            session.add(Revenue(customer=customer, cents=cents))
            session.flush()  # another one may begin with this customer too: then this is tried again
