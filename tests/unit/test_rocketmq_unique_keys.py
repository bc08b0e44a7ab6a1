"""UNIQ_KEY: of RocketMQ's form, and never the same twice."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq import unique_keys
from holdfast.adapters.rocketmq.unique_keys import UniqueKeys
from holdfast.timing import wall_ms

if TYPE_CHECKING:
    import pytest


def test_a_key_has_the_form_and_the_time_that_rocketmq_reads_out_of_it() -> None:
    before_ms, key = wall_ms(), UniqueKeys().next()
    assert len(bytes.fromhex(key)) == 16
    assert key == key.upper()
    assert int(key[8:12], 16) == os.getpid() & 0xFFFF
    month = datetime.now(UTC).astimezone().replace(tzinfo=None, day=1, hour=0, minute=0, second=0, microsecond=0)
    assert 0 <= int(month.timestamp() * 1000) + int(key[20:28], 16) - before_ms < 60_000


def test_threads_and_two_makers_of_one_process_never_make_the_same_key() -> None:
    makers = (UniqueKeys(), UniqueKeys())
    found: list[str] = []

    def make(maker: UniqueKeys) -> None:
        found.extend([maker.next() for _ in range(20_000)])

    threads = [threading.Thread(target=make, args=(maker,)) for maker in makers * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == len(found) == 80_000


def test_a_clock_that_is_set_back_or_stands_still_makes_no_key_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    maker, now_ms = UniqueKeys(), wall_ms()
    monkeypatch.setattr(unique_keys, "wall_ms", lambda: now_ms)
    found = [maker.next() for _ in range(70_000)]  # more than the counter has numbers
    now_ms -= 3_600_000
    found += [maker.next() for _ in range(70_000)]
    assert found == sorted(set(found))


def test_a_new_month_begins_with_another_random_part(monkeypatch: pytest.MonkeyPatch) -> None:
    months = [datetime(2026, number, 3, 4, 5, tzinfo=UTC) for number in (10, 11, 12)]
    months.append(datetime(2027, 1, 3, 4, 5, tzinfo=UTC))
    maker, found = UniqueKeys(), []
    for month in months:
        monkeypatch.setattr(unique_keys, "wall_ms", lambda month=month: int(month.timestamp() * 1000))
        found.append(maker.next())
    assert len({key[:20] for key in found}) == 4
    assert max(int(key[20:28], 16) for key in found) < 4 * 86_400_000


def test_a_forked_child_makes_other_keys_also_if_a_thread_held_the_lock() -> None:
    maker = UniqueKeys()
    maker.next()
    reading, writing = os.pipe()
    with maker._lock:
        child = os.fork()
        if child == 0:
            os.write(writing, maker.next().encode())
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    os.close(writing)
    with os.fdopen(reading) as told:
        assert told.read()[:20] != maker.next()[:20]
