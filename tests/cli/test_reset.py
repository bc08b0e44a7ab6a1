"""`holdfast reset` on the real servers: offsets and positions together, while nobody consumes."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from holdfast import RedisClaims
from holdfast.adapters.kafka.tools.offsets import KafkaOffsetTool
from holdfast.dedup.claims import Acquired, LetGo
from holdfast.dedup.redis_admin import RedisAdmin
from holdfast.timing import Deadline
from tests.cli.bench import Shop, holdfast, lay_out, lines

if TYPE_CHECKING:
    from tests.harness.servers.kafka import KafkaServer


@pytest.fixture
def shop(kafka: KafkaServer, redis_url: str) -> Shop:
    """Ten orders, protected by their positions alone."""
    shop = Shop(kafka, redis_url, key=None)
    shop.send(range(10))
    return shop


def reset(shop: Shop, *more: str, code: int = 0) -> str:
    ran = holdfast("reset", "--group", shop.group, "--topic", shop.topic, *shop.both, *more, code=code)
    return ran.stdout + ran.stderr


def test_a_reset_to_the_start_runs_everything_again_once(shop: Shop) -> None:
    with shop.app():
        shop.until(billed=10)
    told = reset(shop, "--to", "earliest", "--yes")
    assert "at most 10 records would run again and 0 be skipped" in told
    assert "Business keys outlive a reset" in told
    with contextlib.closing(RedisClaims.from_url(shop.redis_url)) as store:
        positions = RedisAdmin.of(store).positions(f"{shop.group}/")
    assert [(each.watermark, each.done_above, each.owner) for each in positions] == [(0, 0, None)] * 2
    with shop.app():
        shop.until(billed=20)
    assert shop.billed == Counter(dict.fromkeys(range(10), 2))


def test_a_reset_to_the_end_skips_what_was_not_handled(shop: Shop) -> None:
    lay_out(shop.redis_url)
    told = reset(shop, "--to", "latest", "--yes", "--new")
    assert "0 records would run again" in told
    with shop.app():
        shop.send(range(10, 12))
        shop.until(billed=2)
    assert shop.billed == Counter(range(10, 12))


def test_a_reset_is_refused_while_members_live(shop: Shop) -> None:
    with shop.app():
        shop.until(billed=10)
        told = reset(shop, "--to", "earliest", "--yes", code=1)
        assert "has 1 member: till at" in told
    with shop.app():
        shop.send([10])
        shop.until(billed=11)
    assert shop.billed == Counter(range(11))


def test_a_dry_run_and_a_missing_yes_change_nothing(shop: Shop) -> None:
    with shop.app():
        shop.until(billed=10)
    before = shop.kafka.committed(shop.group, shop.topic)
    reset(shop, "--to", "earliest", "--dry-run")
    assert "say --yes" in reset(shop, "--to", "earliest", code=1)
    assert shop.kafka.committed(shop.group, shop.topic) == before
    with shop.app():
        shop.send([10])
        shop.until(billed=11)
    assert shop.billed == Counter(range(11))


def test_a_reset_moves_the_partitions_that_are_named_and_no_others(kafka: KafkaServer, redis_url: str) -> None:
    shop = Shop(kafka, redis_url, partitions=4, key=None)
    shop.send(range(40))
    with shop.app():
        shop.until(billed=40)
    ends = kafka.end_offsets(shop.topic)
    number = max(ends, key=lambda each: ends[each])
    ran = holdfast(
        *("reset", "--group", shop.group, "--topic", shop.topic, *shop.both, "--partitions", number),
        *("--to", "-3", "--yes", "--json"),
    )
    partition, done = lines(ran)
    assert done["done"]
    assert (partition["partition"], partition["new"]) == (number, ends[number] - 3)
    assert (partition["again_at_most"], partition["skipped_at_most"]) == (3, 0)
    with shop.app():
        shop.until(billed=43)
    assert sum(count - 1 for count in shop.billed.values()) == 3


def test_a_reset_that_was_killed_before_the_positions_is_honoured_by_the_next_start(shop: Shop) -> None:
    with shop.app():
        shop.until(billed=10)
    with contextlib.closing(KafkaOffsetTool({"bootstrap.servers": shop.kafka.bootstrap}, shop.group)) as tool:
        tool.set(dict.fromkeys(tool.partitions(shop.topic, Deadline(20)), 0), Deadline(20))
    with shop.app():
        shop.until(billed=20)
    assert shop.billed == Counter(dict.fromkeys(range(10), 2))


def test_a_reset_is_refused_while_a_process_that_left_the_group_holds_on(shop: Shop) -> None:
    """One that could not tell the store of its end, or whose handler outlived the drain."""
    with shop.app():
        shop.until(billed=10)
    with contextlib.closing(KafkaOffsetTool({"bootstrap.servers": shop.kafka.bootstrap}, shop.group)) as tool:
        partitions = tool.partitions(shop.topic, Deadline(20))
        names = sorted(tool.position_names(partitions, Deadline(20)).values())
    store = RedisClaims.from_url(shop.redis_url)
    with contextlib.closing(store):
        session = store.begin(3600.0)
        found = session.acquire(names)
        told = reset(shop, "--to", "earliest", "--yes", "--timeout", "2", code=1)
        assert "a live process still holds" in told
        epochs = [each.epoch for each in found if isinstance(each, Acquired)]
        session.let_go([LetGo(name, epoch, [90]) for name, epoch in zip(names, epochs, strict=True)])
        assert "still works on" in reset(shop, "--to", "earliest", "--yes", code=1)
        session.end()
    reset(shop, "--to", "earliest", "--yes")
    with shop.app():
        shop.until(billed=20)
    assert shop.billed == Counter(dict.fromkeys(range(10), 2))
