"""`make soak MINUTES=10 SEED=1`: faults drawn by a seed, over processes on real servers; a table, and chaos-out/.

Each protocol is a leg of its own, with its share of the minutes. A fault harms and heals; when the group has recovered
comes the next. The ledger of the handlers judges, and the audit of what members told; what members
take of the machine has to stay what it was. One row again: `make soak ONLY="kill -9" ON=eager SEED=1 MINUTES=1`.
"""

from __future__ import annotations

import argparse
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
from tests.harness.group.audited import Audited
from tests.harness.group.config import EVERYWHERE
from tests.harness.group.field import FieldError
from tests.harness.servers.kafka import KafkaServer
from tests.harness.servers.rocketmq import RocketMQServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.harness.group.config import Protocol

_OUT = Path("chaos-out")
#: What is shorter tells nothing about leaks.
_LONG_MINUTES = 5.0


def drawn(faults: Sequence[Fault], seed: int) -> Iterator[Fault]:
    """All of them, shuffled, again and again."""
    chance = random.Random(seed)
    while True:
        bag = list(faults)
        chance.shuffle(bag)
        yield from bag


def play(leg: Leg, stage: Stage, faults: Sequence[Fault]) -> None:
    """Until its time is up."""
    ends = time.monotonic() + leg.minutes * 60
    for each in drawn(faults, leg.seed):
        if time.monotonic() > ends:
            return
        now = Played(fault=each.name, protocol=leg.protocol, began_ns=time.monotonic_ns())
        leg.played.append(now)
        each.play(stage)
        now.healed_ns = now.recovered_ns = time.monotonic_ns()
        stage.recover()
        now.recovered_ns = time.monotonic_ns()
        print(f"{leg.protocol}: {each.name}: recovered after {now.recovery_s:.1f} s", flush=True)


def soak(
    leg: Leg,
    server: KafkaServer | RocketMQServer,
    protocol: Protocol,
    faults: Sequence[Fault],
    audited: Audited,
    *,
    keep: bool,
) -> None:
    """One leg: played, and judged by the ledger. Its files are kept where it broke a promise."""
    home = Path(tempfile.mkdtemp(prefix="holdfast-soak-"))
    stage = Stage(server, home, protocol, leg.seed, audited.events)
    try:
        with stage:
            leg.group = stage.field.group
            play(leg, stage, faults)
            leg.looks = stage.end()
            outcome = stage.field.finish()
    except FieldError as error:
        leg.error = str(error)
        shutil.copytree(home, _OUT / f"soak-{leg.protocol}-{leg.seed}", dirs_exist_ok=True)
        return
    leg.records = len(outcome.produced)
    leg.faults = outcome.faults()
    report.attribute(leg.played, outcome)
    if leg.minutes >= _LONG_MINUTES:
        leg.grown = [each.grown for each in leg.looks if each.grown]
    audited.add(outcome)
    if leg.faults or keep:
        shutil.copytree(home, _OUT / f"soak-{leg.protocol}-{leg.seed}", dirs_exist_ok=True)
    shutil.rmtree(home, ignore_errors=True)


def main() -> int:
    """Status 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="of all legs together, without their beginnings and ends"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[], help="faults (all by default); the start of a name is enough")
    parser.add_argument("--on", nargs="*", default=list(EVERYWHERE), choices=EVERYWHERE, help="protocols")
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3), help="of Kafka")
    parser.add_argument("--keep", action="store_true", help="ledger, logs and events, also where all held")
    asked = parser.parse_args()
    chosen = [each for name, each in FAULTS.items() if not asked.only or name.startswith(tuple(asked.only))]
    if not chosen:
        parser.error(f"no such fault; there are: {', '.join(FAULTS)}")
    _OUT.mkdir(exist_ok=True)
    legs: list[Leg] = []
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-events-") as folder, ExitStack() as stack:
        audited = Audited(Path(folder))
        kafka: KafkaServer | None = None
        for protocol in asked.on:
            server: KafkaServer | RocketMQServer
            if protocol == "rocketmq":
                server = stack.enter_context(RocketMQServer())
            else:
                server = kafka = kafka or stack.enter_context(KafkaServer(brokers=asked.brokers, lines=len(NAMES)))
            brokers = asked.brokers if protocol != "rocketmq" else 1
            leg = Leg(protocol=protocol, brokers=brokers, seed=asked.seed, minutes=asked.minutes / len(asked.on))
            legs.append(leg)
            faults = [each for each in chosen if protocol in each.protocols]
            soak(leg, server, protocol, faults, audited, keep=asked.keep)
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
