"""examples/django_shop: a management command bills each order once by the ORM, through a rebalance and a SIGTERM."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.examples.bench import ROOT
from tests.examples.running import Running
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.examples.bench import Shop

_MANAGE = [sys.executable, "-W", "error", "-m", "examples.django_shop.manage"]


@pytest.fixture
def project(shop: Shop, tmp_path: Path) -> Mapping[str, str]:
    """The environment of its commands; its tables are made."""
    env = {
        **os.environ,
        "KAFKA": shop.kafka.bootstrap,
        "REDIS": shop.redis_url,
        "TOPIC": shop.topic,
        "DATABASE": str(tmp_path / "shop.sqlite3"),
    }
    subprocess.run([*_MANAGE, "migrate"], cwd=ROOT, env=env, check=True, capture_output=True)
    return env


@contextmanager
def billing(project: Mapping[str, str]) -> Iterator[Running]:
    process = Running([*_MANAGE, "bill"], project)
    try:
        yield process
    finally:
        process.close()


def bills(project: Mapping[str, str]) -> Counter[str]:
    with closing(sqlite3.connect(project["DATABASE"])) as database:
        return Counter(order for (order,) in database.execute("SELECT order_id FROM billing_bill"))


@pytest.mark.full
def test_each_order_is_billed_once_while_commands_come_and_go(shop: Shop, project: Mapping[str, str]) -> None:
    ids = [f"order-{number}" for number in range(300)]
    with billing(project) as first:
        shop.send(*ids[:100])
        first.until(lambda: bool(first.billed))
        with billing(project) as second:
            second.until(lambda: any("assigned: " in line for line in list(second.errors)))
            shop.send(*ids[100:200])
            second.until(lambda: bool(second.billed))
            assert first.end() == 0, first.errors
            shop.send(*ids[200:])
            until(lambda: len(bills(project)) == len(ids), lambda: (second.lines[-5:], second.errors[-5:]))
            assert second.end() == 0, second.errors
    assert bills(project) == Counter(ids)


def test_the_migrations_are_those_of_the_models(project: Mapping[str, str]) -> None:
    subprocess.run([*_MANAGE, "makemigrations", "--check"], cwd=ROOT, env=project, check=True)
