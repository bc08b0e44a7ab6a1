"""examples/database: rows that are written once, also where the record comes again or its reader has been replaced."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from examples.database.sink import FormerOwner, Order, Sink

if TYPE_CHECKING:
    from pathlib import Path

    from tests.examples.bench import Shop

_DATABASE = "examples.database.orders"


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


def order(order_id: str, cents: int = 100) -> Order:
    return Order(order_id=order_id, customer="somebody", cents=cents)


def test_each_order_is_a_row_once_and_a_second_start_adds_nothing(shop: Shop, tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    ids = [f"order-{number}" for number in range(250)]
    shop.send(*ids, *ids[:50])
    assert shop.run(_DATABASE, "--database", path, "--once")
    for _ in range(2):
        assert rows(path, "SELECT order_id FROM orders ORDER BY rowid") != []
        assert {one for (one,) in rows(path, "SELECT order_id FROM orders")} == set(ids)
        assert rows(path, "SELECT sum(cents) FROM revenue") == rows(path, "SELECT sum(cents) FROM orders")
        assert shop.run(_DATABASE, "--database", path, "--once") == []


def test_what_is_no_order_is_a_dead_letter_and_the_rest_of_its_batch_is_stored(shop: Shop, tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    producer = Producer({"bootstrap.servers": shop.kafka.bootstrap})
    producer.produce(shop.topic, '{"order_id": "half"}', partition=0)
    producer.produce(shop.topic, '{"order_id": "whole", "customer": "c", "cents": 1}', partition=0)
    assert producer.flush(30) == 0
    shop.run(_DATABASE, "--database", path, "--once", handler_fails=True)
    assert rows(path, "SELECT order_id FROM orders") == [("whole",)]
    assert sum(shop.kafka.end_offsets(f"{shop.topic}.dlq").values()) == 1


def test_an_order_that_comes_again_after_a_crash_is_not_counted_again(tmp_path: Path) -> None:
    with closing(Sink(tmp_path / "orders.db")) as sink:
        assert sink.write("orders-0", 7, [order("a"), order("b")]) == 2
        assert sink.write("orders-0", 8, [order("b"), order("c")]) == 1
    assert rows(tmp_path / "orders.db", "SELECT cents FROM revenue") == [(300,)]


def test_a_former_owner_is_refused_and_nothing_of_its_batch_is_written(tmp_path: Path) -> None:
    with closing(Sink(tmp_path / "orders.db")) as first, closing(Sink(tmp_path / "orders.db")) as second:
        first.write("orders-0", 7, [order("a")])
        second.write("orders-0", 8, [order("b")])
        with pytest.raises(FormerOwner):
            first.write("orders-0", 7, [order("c")])
        first.write("orders-1", 3, [order("d")])
    assert [one for (one,) in rows(tmp_path / "orders.db", "SELECT order_id FROM orders")] == ["a", "b", "d"]


def test_a_batch_that_fails_in_the_middle_leaves_nothing_behind(tmp_path: Path) -> None:
    with closing(Sink(tmp_path / "orders.db")) as sink:
        with pytest.raises(sqlite3.IntegrityError):
            sink.write("orders-0", 7, [order("a"), Order(order_id="b", customer=None, cents=1)])  # type: ignore[arg-type]
        assert rows(tmp_path / "orders.db", "SELECT * FROM orders, owners, revenue") == []
