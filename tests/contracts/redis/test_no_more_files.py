"""A process that can open no more files, and loses its connections to Redis: it pauses, says why, and goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.harness.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]
#: Arguments: Redis' URL. Says what it did.
PROGRAM = """
import logging, resource, sys
import redis
from holdfast import Holdfast, RedisClaims, Settings
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.waiting import until

logging.basicConfig(level=logging.INFO)
broker, seen = MemoryBroker(orders=1), []
app = Holdfast(
    MemoryPartitionedSource(broker), claims=RedisClaims.from_url(sys.argv[1], lease_s=3600.0),
    settings=Settings(workers=2, ramp=None),
)
app.handler("orders", name="handle")(lambda record: seen.append(record.offset))
app.start()
broker.produce("orders", 0, "a", "b")
# What is committed is marked: no call is under way that would end with another reason.
until(lambda: [each.committed for each in app.snapshot().partitions] == [2])
side = redis.Redis.from_url(sys.argv[1])
side.ping()
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
side.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
broker.produce("orders", 0, "c", "d")
until(lambda: app.snapshot().state == "paused: store down")
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
until(lambda: len(seen) == 4)
app.stop(wait=True)
print(seen, app.snapshot().store.sessions_lost)
"""


def test_it_pauses_with_the_reason_and_goes_on_when_a_file_can_be_opened(redis_url: str) -> None:
    command = [sys.executable, "-c", PROGRAM, redis_url]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert ran.stdout == "[0, 1, 2, 3] 0\n"
    [down] = [line for line in ran.stderr.splitlines() if "store down" in line]
    assert "Too many open files" in down
