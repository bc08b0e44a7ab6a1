"""`make chaos ON=audit`: the driver of an audit of a stream killed again and again, with real Kafka.

A round sends some events of groups with planted faults, starts a driver that reads what is there, and kills it with all
that it has started (kill -9) at a moment of a batch. A last driver reads on to the end, and its tables are held against
what was planted: no row is missing, and none is there twice.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from holdfast.adapters.spark.audit import follow, stream
from tests.harness.processes import kill_session, ran_well, spawn, tail
from tests.harness.servers.kafka import KafkaServer
from tests.harness.waiting import until
from tests.spark.audit.streamed import later, send, tables, wrong
from tests.spark.audit.synthetic import MIXES, played
from tests.spark.session import SHORT_LIFE, local_session

if TYPE_CHECKING:
    import subprocess

_ROOT = Path(__file__).parents[2]
_TOPIC = "audit"
_PATIENCE_S = 600.0


def drive(home: Path, bootstrap: str) -> None:
    """Read what is there."""
    spark = local_session(home / "warehouse", SHORT_LIFE)
    lines = stream(spark, f"kafka:{bootstrap}/{_TOPIC}", options={"maxOffsetsPerTrigger": "150"})
    now = {"availableNow": True}
    follow(lines, output=str(home / "out"), checkpoint=str(home / "checkpoint"), trigger=now).awaitTermination()
    spark.stop()


def numbers(folder: Path) -> set[int]:
    """Of batches that have a file there."""
    return {int(each.name) for each in folder.iterdir() if each.name.isdigit()} if folder.is_dir() else set()


def snapshot(home: Path) -> dict[str, set[object]]:
    """What changes when a batch has begun, and when it has written the first of its tables."""
    return {
        "begun": {*numbers(home / "checkpoint" / "offsets")},
        "written": {*(home / "out").glob("*/batch=*/*.parquet")},
    }


def came_to(home: Path) -> str:
    """Where the driver was when it was killed."""
    begun, noted = numbers(home / "checkpoint" / "offsets"), numbers(home / "checkpoint" / "commits")
    open_ = begun - noted
    if not open_:
        return "between two batches"
    written = list((home / "out").glob(f"[a-z]*/batch={max(open_)}/*.parquet"))
    return "tables were being written" if written else "a batch had begun"


def _await(driver: subprocess.Popen[bytes], home: Path, aim: str, before: set[object]) -> None:
    """Until it is past that, or has ended by itself."""
    until(
        lambda: driver.poll() is not None or snapshot(home)[aim] != before,
        lambda: tail(home / "log"),
        patience_s=_PATIENCE_S,
    )


def play(home: Path, kills: int, seed: int) -> tuple[Counter[str], list[str]]:
    """All rounds, and the last driver: where it was killed, and what is wrong."""
    random, killed = Random(seed), Counter[str]()
    groups = [played(f"{mix}-{seed}", seed, mix) for mix in MIXES]
    lines = sorted((line for each in groups for line in each.lines), key=lambda line: json.loads(line)["at_ms"])
    lines += map(later, groups)
    a_round = len(lines) // (kills + 1) + 1
    with KafkaServer() as kafka:
        kafka.create_topic(_TOPIC, 2)

        def started() -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", "tests.chaos.audit", "--drive", str(home), kafka.bootstrap]
            return spawn(command, home / "log", cwd=_ROOT)

        for number in range(kills):
            send(kafka.bootstrap, _TOPIC, lines[number * a_round : (number + 1) * a_round])
            before, driver = snapshot(home), started()
            aim = random.choice(("begun", "written"))
            _await(driver, home, aim, before[aim])
            time.sleep(random.choice((0.0, random.uniform(0.0, 4.0))))
            kill_session(driver)
            where = came_to(home)
            killed[where] += 1
            print(f"kill {number + 1}: {where}", flush=True)
        send(kafka.bootstrap, _TOPIC, lines[kills * a_round :])
        ran_well(started(), home / "log", _PATIENCE_S)
    return killed, wrong(tables(home / "out"), groups)


def main() -> int:
    """Status 1 where a row is missing, or told twice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--drive", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.drive:
        drive(Path(asked.drive[0]), asked.drive[1])
        return 0
    home = Path(tempfile.mkdtemp(prefix="holdfast-audit-"))
    killed, said = play(home, asked.kills, asked.seed)
    print(f"\nkilled {killed.total()} times: {dict(killed)}\nwrong: {said or 'nothing'}")
    shutil.rmtree(home, ignore_errors=True)
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main())
