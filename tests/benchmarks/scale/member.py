"""The app that `holdfast run` starts in each of its processes: it counts, and writes what it saw when it ends."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

from holdfast import Holdfast, RedisClaims, Settings
from holdfast.adapters.kafka import KafkaSource

#: Clocks are asked at the first record and at each 500th, so that they cost next to nothing.
_EVERY = 500

_began: list[tuple[float, float]] = []
_last = (0, 0.0, 0.0)
_count = itertools.count(1)


def make_app() -> Holdfast:
    """As the environment says (see `processes.py`)."""
    group = os.environ["BENCH_GROUP"]
    conf = {
        "bootstrap.servers": os.environ["BENCH_BOOTSTRAP"],
        "group.id": group,
        "auto.offset.reset": "earliest",
        "group.protocol": "consumer",
    }
    app = Holdfast(
        KafkaSource(conf, assignment="keep"),
        claims=RedisClaims.from_url(os.environ["BENCH_REDIS"], namespace=group),
        settings=Settings(workers=16, ordering="key", ramp=None),
    )
    app.handler(os.environ["BENCH_TOPIC"], name="bench")(_handle)
    app.on_shutdown(_write)
    return app


def _handle(_: object) -> None:
    global _last  # noqa: PLW0603 - one app a process
    number = next(_count)
    if number == 1:
        _began.append((time.monotonic(), time.process_time()))
    if number % _EVERY == 0:
        _last = (number, time.monotonic(), time.process_time())


def _write() -> None:
    if _began and _last[0]:
        (began, cpu), (records, ended, cpu_ended) = _began[0], _last
        line = f"{records} {began} {ended} {cpu_ended - cpu}\n"
        (Path(os.environ["BENCH_OUT"]) / str(os.getpid())).write_text(line)
