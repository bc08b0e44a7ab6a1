"""examples/database: rows that are written once, without Redis, also where the record comes again."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy
from confluent_kafka import Producer
from sqlalchemy.orm import Session

from examples.database.models import Base, Order, book

if TYPE_CHECKING:
    from pathlib import Path

    from tests.examples.bench import Shop

_DATABASE = "examples.database.orders"


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


def test_each_order_is_a_row_once_and_a_second_start_adds_nothing(shop: Shop, tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    ids = [f"order-{number}" for number in range(250)]
    shop.send(*ids, *ids[:50])
    assert shop.run(_DATABASE, "--database", f"sqlite:///{path}", "--once")
    for _ in range(2):
        assert {one for (one,) in rows(path, "SELECT order_id FROM orders")} == set(ids)
        assert rows(path, "SELECT sum(cents) FROM revenue") == rows(path, "SELECT sum(cents) FROM orders")
        assert shop.run(_DATABASE, "--database", f"sqlite:///{path}", "--once") == []


def test_what_is_no_order_is_a_dead_letter_and_the_rest_of_its_batch_is_stored(shop: Shop, tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    producer = Producer({"bootstrap.servers": shop.kafka.bootstrap})
    producer.produce(shop.topic, '{"order_id": "half"}', partition=0)
    producer.produce(shop.topic, '{"order_id": "whole", "customer": "c", "cents": 1}', partition=0)
    assert producer.flush(30) == 0
    shop.run(_DATABASE, "--database", f"sqlite:///{path}", "--once", handler_fails=True)
    assert rows(path, "SELECT order_id FROM orders") == [("whole",)]
    assert sum(shop.kafka.end_offsets(f"{shop.topic}.dlq").values()) == 1


def test_revenue_is_the_sum_of_a_customers_orders(tmp_path: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'orders.db'}")
    Base.metadata.create_all(engine)
    for numbers in ((1, 2), (3,)):
        with Session(engine) as session, session.begin():
            book(session, [Order(order_id=str(n), customer="ab"[n % 2], cents=n) for n in numbers])
    with pytest.raises(sqlalchemy.exc.IntegrityError), Session(engine) as session, session.begin():
        book(session, [Order(order_id="1", customer="b", cents=100)])
    assert rows(tmp_path / "orders.db", "SELECT * FROM revenue ORDER BY customer") == [("a", 2), ("b", 4)]
    engine.dispose()
