"""`make chaos ON=spark`: drivers killed again and again, with real Kafka; a table, and chaos-out/.

All shapes run in one driver, each with a query and a sink of its own, and read the same orders. A round sends orders,
and those of the round before again; starts a driver; waits until each query stands still at the phase that this round
has for it; and kills the driver with all that it has started (kill -9), at once or after a moment in which the queries
go on. A shape that can do without has a second query, whose checkpoint is deleted in the middle. A last driver reads
what is left, and what is in the sinks is counted.

With `--failovers` the store is a Redis that Sentinel fails over. In so many of the rounds its master is killed as the
queries go on, and the driver when another master is named.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.harness.servers.kafka import KafkaServer
from tests.harness.servers.postgres import PostgresServer
from tests.harness.servers.redis import RedisServer
from tests.harness.servers.sentinels import Sentinels
from tests.spark.driver import Aim, Plan
from tests.spark.gates import PHASES
from tests.spark.kills import Drivers
from tests.spark.orders import Judged, send
from tests.spark.tables import SHAPES

if TYPE_CHECKING:
    from collections.abc import Sequence

_OUT = Path("chaos-out")
_TOPIC = "orders"
_NEW = 120  # orders a round
#: The query of a shape whose checkpoint is deleted in the middle.
_DELETED = "-deleted"


@dataclass(kw_only=True)
class Result:
    """Of one query."""

    shape: str
    ours: bool
    #: Its checkpoint was deleted in the middle.
    deleted: bool
    #: How often it was killed, by the last phase that it had come to in that driver.
    killed: dict[str, int] = field(default_factory=dict)
    judged: Judged | None = None


def phases(random: Random, rounds: int) -> list[str]:
    """One a round: each as often as the others, in any order."""
    made: list[str] = []
    while len(made) < rounds:
        made += random.sample(PHASES, len(PHASES))
    return made[:rounds]


class _Store:
    """One Redis, or one that Sentinel fails over."""

    def __init__(self, stack: ExitStack, *, fails_over: bool) -> None:
        self._sentinels = stack.enter_context(Sentinels(guarded=True)) if fails_over else None
        self.url = self._sentinels.url() if self._sentinels else stack.enter_context(RedisServer(aof=True)).url

    def fail_over(self) -> None:
        """Returns when another master is named, and has both others as replicas."""
        assert self._sentinels is not None
        dead = self._sentinels.leading()
        dead.kill()
        self._sentinels.replace(dead)


def play(home: Path, names: Sequence[str], kills: int, seed: int, failovers: int) -> list[Result]:
    """All rounds, and the last driver."""
    random = Random(seed)
    with_failover = set(Random(seed).sample(range(kills), failovers))
    results: dict[str, Result] = {}
    for name in names:
        results[name] = Result(shape=name, ours=SHAPES[name].ours, deleted=False)
        if SHAPES[name].without_checkpoint:
            results[name + _DELETED] = Result(shape=name, ours=SHAPES[name].ours, deleted=True)
    aimed = {name: phases(random, kills) for name in results}
    drivers = Drivers(home)
    with ExitStack() as stack, KafkaServer() as kafka, PostgresServer() as postgres:
        store = _Store(stack, fails_over=failovers > 0)
        kafka.create_topic(_TOPIC, 2)
        plan = Plan(
            bootstrap=kafka.bootstrap, topic=_TOPIC, redis=store.url, postgres=postgres.database(), per_batch=_NEW
        )
        for number in range(kills):
            send(kafka.bootstrap, _TOPIC, _round(number))
            aims = [
                Aim(name=name, shape=each.shape, phase=aimed[name][number], after=random.choice((0, 0, 1)))
                for name, each in results.items()
            ]
            let_go_s = random.choice((None, random.uniform(0.0, 1.5)))
            if number in with_failover:
                came_to = drivers.run_and_kill(replace(plan, aims=aims), let_go_s or 0.0, store.fail_over)
            else:
                came_to = drivers.run_and_kill(replace(plan, aims=aims), let_go_s)
            for name, each in came_to.items():
                phase, killed = each.partition(" ")[0] or "nothing", results[name].killed
                killed[phase] = killed.get(phase, 0) + 1
            print(f"kill {number + 1}{' with a failover' * (number in with_failover)}: {came_to}", flush=True)
            if number == kills // 2:
                for name, result in results.items():
                    if result.deleted:
                        shutil.rmtree(home / name / "checkpoint")
        sent = kills * _NEW
        send(kafka.bootstrap, _TOPIC, range(sent - _NEW, sent))  # those of the last round
        aims = [Aim(name=name, shape=each.shape) for name, each in results.items()]
        drivers.run(replace(plan, aims=aims, per_batch=None, sent=sent))
    judged = json.loads((home / "judged").read_text())
    for name, result in results.items():
        result.judged = Judged(**judged[name])
    return list(results.values())


def _round(number: int) -> list[int]:
    """Its own orders, and between them those of the round before, which come again."""
    first = number * _NEW
    own = range(first, first + _NEW)
    again = range(max(0, first - _NEW), first)
    return [each for both in zip(own, again, strict=True) for each in both] if again else list(own)


def table(results: Sequence[Result]) -> str:
    """As docs/measured/spark-kills.md has it."""
    rows = ["| sink | kills by last phase | lost | doubled | of those by a replay |", "|---|---|--:|--:|--:|"]
    for each in results:
        if each.judged is None:
            continue
        killed = ", ".join(f"{phase} {count}" for phase, count in sorted(each.killed.items()))
        name = f"{'**' if each.ours else ''}{each.shape}{'**' if each.ours else ''}"
        name += ", checkpoint deleted" if each.deleted else ""
        judged = each.judged
        rows.append(f"| {name} | {killed} | {judged.lost:,} | {judged.doubled:,} | {judged.replayed:,} |")
    return "\n".join(rows)


def main() -> int:
    """Status 1 where a sink of holdfast's has lost or doubled a key."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--failovers", type=int, default=0, help="of the store, in so many of the rounds")
    parser.add_argument("--only", nargs="*", default=list(SHAPES), choices=SHAPES)
    asked = parser.parse_args()
    if not 0 <= asked.failovers <= asked.kills:
        parser.error(f"--failovers {asked.failovers}: there are {asked.kills} rounds, and one failover a round at most")
    _OUT.mkdir(exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="holdfast-spark-"))
    began = time.monotonic()
    results = play(home, asked.only, asked.kills, asked.seed, asked.failovers)
    machine = {"system": platform.platform(), "python": platform.python_version(), "processors": os.cpu_count()}
    path = _OUT / f"spark-{time.strftime('%Y%m%d-%H%M%S')}.json"
    found = {
        "machine": machine,
        "arguments": vars(asked),
        "orders": asked.kills * _NEW,
        "seconds": round(time.monotonic() - began),
        "results": [asdict(each) for each in results],
    }
    path.write_text(json.dumps(found, indent=1))
    print(f"\n{table(results)}\n\n{path}")
    wrong = any(each.judged is None or not each.judged.right for each in results if each.ours)
    if wrong:
        shutil.copytree(home, path.with_suffix(""))
    shutil.rmtree(home, ignore_errors=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
