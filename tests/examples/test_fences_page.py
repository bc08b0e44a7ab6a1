"""docs/how-to/fences.md: its snippets as they stand, on a real PostgreSQL and a real Redis."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

from holdfast import make_record
from tests.examples.bench import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.records import Record
    from tests.harness.servers.postgres import PostgresServer
    from tests.harness.servers.redis import RedisServer

_PAGE = (ROOT / "docs/how-to/fences.md").read_text(encoding="utf-8")
_BLOCKS = re.findall(r"<!-- test: (\w+) -->\n```python\n(.*?)```", _PAGE, re.DOTALL)
ORDERS = "CREATE TABLE orders (order_id bigint PRIMARY KEY, cents bigint)"
REVENUE = "CREATE TABLE revenue (customer text PRIMARY KEY, cents bigint)"


class Fence(NamedTuple):
    epoch: int
    session: str = "s"
    cancelled: bool = False

    def overdue(self, record: Record) -> bool:
        return False


def snippet(of: str, beginning: str) -> tuple[dict[str, Any], str]:
    """What a block of the page defines, and the table that a comment of it says is made once."""
    [code] = [code for where, code in _BLOCKS if where == of and re.match(rf"(#.*\n)?{beginning}", code)]
    names: dict[str, Any] = {}
    exec(compile(code, "fences.md", "exec"), names)  # noqa: S102 - our own page
    made = re.search(r"CREATE TABLE .*", code)
    return names, made.group() if made else ""


def order(cents: int, *, epoch: int = 1, offset: int = 0, sent_ms: int = 5) -> Record:
    record = make_record({"order_id": 17, "customer": "c", "cents": cents}, topic="orders")
    return record._replace(fence=Fence(epoch), offset=offset, timestamp_ms=sent_ms)


def test_each_marked_block_is_tried_here() -> None:
    assert [where for where, _ in _BLOCKS] == ["postgres", "postgres", "redis", "postgres"]


class TestPostgres:
    @pytest.fixture
    def connection(self, postgres: PostgresServer) -> Iterator[psycopg.Connection]:
        with psycopg.connect(postgres.database(), autocommit=True) as made:
            yield made

    def test_an_upsert_is_one_row(self, connection: psycopg.Connection) -> None:
        names, _ = snippet("postgres", "def book")
        connection.execute(ORDERS)
        names["book"](connection, order(1))
        names["book"](connection, order(2))
        assert connection.execute("SELECT order_id, cents FROM orders").fetchall() == [(17, 2)]

    def test_a_lower_fence_is_refused_and_changes_nothing(self, connection: psycopg.Connection) -> None:
        names, table = snippet("postgres", "HOLD")
        connection.execute(ORDERS)
        connection.execute(table.encode())
        names["book"](connection, order(1, epoch=7))
        names["book"](connection, order(2, epoch=8))
        names["book"](connection, order(3, epoch=8))
        with pytest.raises(names["FormerOwner"]):
            names["book"](connection, order(4, epoch=7))
        assert connection.execute("SELECT cents, epoch FROM orders, fences").fetchall() == [(3, 8)]

    def test_a_mark_makes_an_effect_happen_once_and_knows_a_topic_that_was_made_again(
        self, connection: psycopg.Connection
    ) -> None:
        names, table = snippet("postgres", "DONE")
        connection.execute(REVENUE)
        connection.execute(table.encode())
        for offset in (0, 0, 1, 0):
            names["book"](connection, order(10, offset=offset))
        assert connection.execute("SELECT cents FROM revenue").fetchall() == [(20,)]
        names["book"](connection, order(10, offset=0, sent_ms=6))
        assert connection.execute("SELECT cents FROM revenue").fetchall() == [(30,)]
        connection.execute("DELETE FROM done WHERE partition = 'orders-0' AND log_offset >= 1")
        names["book"](connection, order(10, offset=1))
        assert connection.execute("SELECT cents FROM revenue").fetchall() == [(40,)]


def test_redis_refuses_a_lower_fence(redis_url: str, redis_server: RedisServer) -> None:
    names, _ = snippet("redis", "WRITE")
    now = 1_795_447_295_856  # as large as they are
    with redis_server.client() as client:
        names["book"](client, order(1, epoch=now))
        names["book"](client, order(2, epoch=now + 1))
        with pytest.raises(names["FormerOwner"]):
            names["book"](client, order(3, epoch=now))
        assert client.get("order:17") == b"2"
