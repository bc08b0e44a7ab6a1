"""A process by hand: two rebalances, and a record that waits for its key. docs/operations/watching.md shows its page.

`python -m tests.docs.sample_page` takes the picture anew, with the Chromium that is on PATH.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast import MemoryClaims
from holdfast.adapters.watching import serve
from holdfast.adapters.watching.members import summary
from holdfast.adapters.watching.outside import Outside
from holdfast.plugin.events import RebalanceReport
from holdfast.plugin.observe.health import Health
from holdfast.plugin.observe.snapshot import (
    CallFigures,
    HandlerFigures,
    LoadFigures,
    OpenRecord,
    PartitionFigures,
    RebalanceFigures,
    RecordFigures,
    Snapshot,
    StoreFigures,
)
from holdfast.records import Partition
from holdfast.timing import SYSTEM_CLOCK, wall_ms
from tests.contracts.test_page_in_a_browser import chromium

PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "page.png"
GROUP, TOPIC, MEMBER = "billing", "orders", "web1-4711"
_WAITS = "its key, which another member has claimed"


class Sample:
    """An app whose figures grow with each look, as if a second had passed: a browser that takes a picture hurries."""

    def __init__(self) -> None:
        self.claims = MemoryClaims()
        self._passed_s, self._began_ms = 0, wall_ms()

    def health(self, **_: float) -> Health:
        why = f"{TOPIC}-1 has stood still at 118120 for 312 s with a lag of 80: it waits for {_WAITS}"
        return Health(state="running", live=True, ready=True, reasons=(why,))

    def snapshot(self) -> Snapshot:
        self._passed_s = passed_s = self._passed_s + 1
        done = passed_s * 1_240
        return Snapshot(
            state="running",
            group=GROUP,
            member=MEMBER,
            at_ms=self._began_ms + passed_s * 1000,
            uptime_s=12_840 + passed_s,
            records=RecordFigures(handled=1_820_034 + done, suppressed_by_key=3, failed_attempts=14, dead_lettered=2),
            load=LoadFigures(running=8, in_flight=146, in_flight_bytes=61_000),
            handlers={
                "bill": HandlerFigures(
                    calls=1_820_048 + done,
                    seconds=9_600 + passed_s * 6.6,
                    max_s=1.84,
                    buckets=(12_000, 1_650_000 + done, 141_000, 16_900, 140, 8, 0, 0, 0, 0),
                    failed_attempts=14,
                    dead_lettered=2,
                )
            },
            store=StoreFigures(
                calls={
                    "acquire": CallFigures(calls=3, seconds=0.004),
                    "exchange": CallFigures(calls=40_100 + done // 40, seconds=31.0 + passed_s * 0.02),
                }
            ),
            rebalances=RebalanceFigures(
                by_trigger={"assigned": 1, "revoked": 1},
                pause_s=0.04,
                pause_max_s=0.04,
                recovered_s=0.9,
                recovered_max_s=0.9,
                commits_sent=25_310,
                last=self._reports(),
            ),
            partitions=(
                _partition(0, 620_114 + done // 2, lag=33, for_s=0.004, waits_for="its handler bill"),
                _partition(1, 118_120, lag=80, for_s=312, waits_for=_WAITS),
                _partition(2, 604_870 + done // 2, lag=33, for_s=0.011, waits_for="its handler bill"),
            ),
        )

    def _reports(self) -> tuple[RebalanceReport, ...]:
        named = [Partition(TOPIC, number) for number in range(4)]
        return (
            RebalanceReport(
                trigger="assigned",
                protocol="consumer",
                group=GROUP,
                began_ms=self._began_ms - 12_840_000,
                gained=tuple(named),
                phases_s={"take_over": 0.021},
                pause_s=0.04,
                recovered_s=0.9,
            ),
            RebalanceReport(
                trigger="revoked",
                protocol="consumer",
                group=GROUP,
                began_ms=self._began_ms - 61_000,
                given=(named[3],),
                drained=8,
                handed_back=118,
                duplicates_suppressed=3,
                phases_s={"fence": 0.0, "drain": 0.082, "settle": 0.004, "commit": 0.006, "let_go": 0.002},
            ),
        )


def _partition(number: int, watermark: int, *, lag: int, for_s: float, waits_for: str) -> PartitionFigures:
    return PartitionFigures(
        partition=Partition(TOPIC, number),
        phase="owned",
        watermark=watermark,
        log_end=watermark + lag,
        in_flight=lag,
        waiting_for_claims=1 if for_s > 1 else 0,
        lowest=OpenRecord(offset=watermark, handler="bill", for_s=for_s, waits_for=waits_for),
    )


class Other:
    """The member that has got the partition."""

    claims = None

    def snapshot(self) -> Snapshot:
        return Snapshot(
            state="running",
            group=GROUP,
            member="web2-4711",
            at_ms=wall_ms(),
            uptime_s=64,
            records=RecordFigures(handled=75_310),
            load=LoadFigures(running=4, in_flight=21, in_flight_bytes=9_000),
            partitions=(_partition(3, 598_204, lag=21, for_s=0.006, waits_for="its handler bill"),),
        )

    def health(self, **_: float) -> Health:
        return Health(state="running", live=True, ready=True)


def main() -> None:
    """Take the picture."""
    sample = Sample()
    [other] = Outside([Other()], 300, 60).status()["apps"]
    sample.claims.groups.post(GROUP, "other", summary(other))
    with serve(sample, port=0) as endpoint, TemporaryDirectory() as profile:
        SYSTEM_CLOCK.sleep(4.0)  # until the sample has told of itself
        how = ["--window-size=1400,1395", "--virtual-time-budget=6000", "--hide-scrollbars", f"--screenshot={PICTURE}"]
        subprocess.run([*chromium(Path(profile)), *how, endpoint.url], check=True, timeout=120)


if __name__ == "__main__":
    main()
