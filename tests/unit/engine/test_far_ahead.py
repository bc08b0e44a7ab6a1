"""A record that does not end holds its partition after a while, and no other: what is done above it is bounded."""

from __future__ import annotations

import pytest

from holdfast import Settings
from holdfast.errors import SettingError
from holdfast.plugin.events import ReadTooFarAhead
from tests.harness.engine import Bench, numbered, partition
from tests.harness.waiting import until

SETTINGS = Settings(workers=4, max_in_flight=64, poll_batch=50, ordering="none", max_ahead=500)
#: What may have come before the partition is paused.
COMES = 500 + 64 + 2 * 50


def test_what_is_done_above_a_record_that_does_not_end_is_bounded_and_the_record_is_named() -> None:
    with Bench(orders=2) as bench:
        bench.work.hold("x0")
        bench.broker.produce("orders", 0, *numbered("x", range(3_000)))
        member = bench.member(settings=SETTINGS)
        bench.wait(lambda: any(isinstance(each, ReadTooFarAhead) for each in member.events))
        bench.broker.produce("orders", 1, *numbered("y", range(2_000)))
        bench.wait_ended(*(f"y{number}" for number in range(2_000)))
        [told] = [each for each in member.events if isinstance(each, ReadTooFarAhead)]
        assert (told.partition, told.offset, told.max_ahead) == (partition(), 0, 500)
        ended = [value for value in bench.work.values() if value[0] == "x"]
        assert len(ended) < COMES
        watermark, above = bench.position()
        assert watermark == 0
        assert max(above) < COMES
        until(lambda: any("nothing more is read" in why for why in member.app.health(stall_s=0.0).reasons))
        assert member.app.snapshot().partitions[0].paused == "it was read 500 offsets beyond its lowest open record"
        held = member.app.health(stall_s=0.0).stalled
        assert (partition(), 0) in [(each.partition, each.offset) for each in held]
        bench.work.let_go("x0")
        bench.wait_ended(*(f"x{number}" for number in range(3_000)))
        bench.wait_committed(3_000)
        assert max(bench.work.times().values()) == 1


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(SettingError, match="max_ahead"):
        Settings(max_ahead=0)
