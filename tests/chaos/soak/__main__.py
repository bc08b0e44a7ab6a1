"""`make soak MINUTES=10 SEED=1`: faults drawn by a seed, over processes on real servers; a table, and chaos-out/.

Each protocol, number of brokers and kind of store is a leg of its own, with its share of the minutes. A fault harms and
heals; when the group has recovered comes the next. The ledger of the handlers judges, and the audit of what members
told; what members take of the machine has to stay what it was.
One row again: `make soak ONLY="kill -9" ON=eager BROKERS=several STORE=cluster SEED=1 MINUTES=1`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import random
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.soak import report
from tests.chaos.soak.faults import FAULTS, Fault
from tests.chaos.soak.report import Leg, Played
from tests.chaos.soak.stage import NAMES, Stage
from tests.chaos.soak.stores import MADE, STORES
from tests.harness.group.audited import Audited
from tests.harness.group.config import EVERYWHERE
from tests.harness.processes import ServerFailed
from tests.harness.servers.kafka import KafkaServer
from tests.harness.servers.rocketmq import RocketMQServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.harness.group.config import Protocol

_OUT = Path("chaos-out")
#: What is shorter tells nothing about leaks.
_LONG_MINUTES = 5.0
#: Brokers: of Kafka three.
_SEVERAL = {"rocketmq": 2}


def drawn(faults: Sequence[Fault], seed: int) -> Iterator[Fault]:
    """All of them, shuffled, again and again."""
    chance = random.Random(seed)
    while True:
        bag = list(faults)
        chance.shuffle(bag)
        yield from bag


def play(leg: Leg, stage: Stage, faults: Sequence[Fault], backlog: int) -> None:
    """Until its time is up. Args: backlog: orders that one partition gets before each fault."""
    ends = time.monotonic() + leg.minutes * 60
    for each in drawn(faults, leg.seed):
        if time.monotonic() > ends:
            return
        now = Played(fault=each.name, began_ns=time.monotonic_ns())
        leg.played.append(now)
        stage.field.send_backlog(backlog)
        each.play(stage)
        now.healed_ns = now.recovered_ns = time.monotonic_ns()
        stage.recover()
        now.recovered_ns = time.monotonic_ns()
        print(f"{', '.join(leg.where)}: {each.name}: recovered after {now.recovery_s:.1f} s", flush=True)


def soak(
    leg: Leg,
    server: KafkaServer | RocketMQServer,
    faults: Sequence[Fault],
    audited: Audited,
    *,
    backlog: int,
    keep: bool,
) -> None:
    """One leg: played, and judged by the ledger. Its files are kept where it broke a promise."""
    home = Path(tempfile.mkdtemp(prefix="holdfast-soak-"))
    kept = _OUT / "-".join(("soak", *leg.where, str(leg.seed)))
    try:
        with (
            MADE[leg.store](len(NAMES)) as store,
            Stage(server, store, home, leg.protocol, leg.seed, audited.events) as stage,
        ):
            leg.group = stage.field.group
            play(leg, stage, faults, backlog)
            leg.looks = stage.end()
            outcome = stage.field.finish()
    except (AssertionError, ServerFailed) as error:  # it did not recover, or a server did not come back
        leg.error = str(error)
        shutil.copytree(home, kept, dirs_exist_ok=True)
        return
    leg.records = len(outcome.produced)
    leg.faults = outcome.faults()
    report.attribute(leg.played, outcome)
    if leg.minutes >= _LONG_MINUTES:
        leg.grown = [each.grown for each in leg.looks if each.grown]
    audited.add(outcome)
    if leg.faults or keep:
        shutil.copytree(home, kept, dirs_exist_ok=True)
    shutil.rmtree(home, ignore_errors=True)


class Servers:
    """Brokers, started when they are first asked for; those of a kind serve all its legs."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._kafka: dict[int, KafkaServer] = {}
        self._rocketmq: dict[int, RocketMQServer] = {}

    def get(self, protocol: Protocol, brokers: int) -> KafkaServer | RocketMQServer:
        """Those for a leg."""
        if protocol == "rocketmq":
            if brokers not in self._rocketmq:
                self._rocketmq[brokers] = self._stack.enter_context(RocketMQServer(brokers=brokers))
            return self._rocketmq[brokers]
        if brokers not in self._kafka:
            self._kafka[brokers] = self._stack.enter_context(KafkaServer(brokers=brokers, lines=len(NAMES)))
        return self._kafka[brokers]


def legs_of(asked: argparse.Namespace) -> list[Leg]:
    """One for each combination, each with the same part of the time."""
    combined = [*itertools.product(asked.on, asked.brokers, asked.store)]
    return [
        Leg(
            protocol=protocol,
            brokers=1 if brokers == "one" else _SEVERAL.get(protocol, 3),
            store=store,
            seed=asked.seed,
            minutes=asked.minutes / len(combined),
        )
        for protocol, brokers, store in combined
    ]


def main() -> int:
    """Status 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="of all legs together, without their beginnings and ends"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[], help="faults (all by default); the start of a name is enough")
    parser.add_argument("--on", nargs="*", default=list(EVERYWHERE), choices=EVERYWHERE, help="protocols")
    parser.add_argument(
        "--brokers",
        nargs="*",
        default=["one"],
        choices=("one", "several"),
        help="several: three of Kafka, two of RocketMQ",
    )
    parser.add_argument("--store", nargs="*", default=["one"], choices=STORES, help="kinds of it")
    parser.add_argument("--backlog", type=int, default=0, help="orders that one partition gets before each fault")
    parser.add_argument("--keep", action="store_true", help="ledger, logs and events, also where all held")
    asked = parser.parse_args()
    chosen = [each for name, each in FAULTS.items() if not asked.only or name.startswith(tuple(asked.only))]
    if not chosen:
        parser.error(f"no such fault; there are: {', '.join(FAULTS)}")
    _OUT.mkdir(exist_ok=True)
    legs = legs_of(asked)
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-events-") as folder, ExitStack() as stack:
        audited, servers = Audited(Path(folder)), Servers(stack)
        for leg in legs:
            faults = [each for each in chosen if each.fits(leg.protocol, leg.brokers, leg.store)]
            if faults:
                server = servers.get(leg.protocol, leg.brokers)
                soak(leg, server, faults, audited, backlog=asked.backlog, keep=asked.keep)
        legs = [each for each in legs if each.played]
        _audit(legs, audited)
    written = report.text(legs)
    path = _OUT / f"soak-{time.strftime('%Y%m%d-%H%M%S')}"
    machine = {"system": platform.platform(), "python": platform.python_version()}
    result = {"machine": machine, "arguments": vars(asked), "legs": [each.as_json() for each in legs]}
    path.with_suffix(".json").write_text(json.dumps(result, indent=1))
    path.with_suffix(".txt").write_text(f"{written}\n")
    print(f"\n{written}\n\n{path}.txt, {path}.json")
    return int(not all(each.held for each in legs))


def _audit(legs: Sequence[Leg], audited: Audited) -> None:
    """One audit of all that was told; it is kept where it does not say the same as the ledgers."""
    if not audited.accounts:
        return
    found = audited.judge()
    for each in legs:
        each.audit = found.get(each.group)
    if any(found.values()):
        shutil.copytree(audited.folder, _OUT / "soak-audit", dirs_exist_ok=True)


if __name__ == "__main__":
    sys.exit(main())
