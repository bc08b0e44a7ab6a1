"""`python -m tests.chaos`: the stories again and again, also with plain loops; a table, and chaos-out/."""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tests.harness.group.audited import TELL, Audited
from tests.harness.group.config import EVERYWHERE, KINDS, Kind, Protocol, kinds_on
from tests.harness.group.field import FieldError
from tests.harness.group.story import STORIES, Story
from tests.harness.servers.kafka import KafkaServer
from tests.harness.servers.redis import RedisServer
from tests.harness.servers.rocketmq import RocketMQServer
from tests.stories import (
    stories_brokers,
    stories_crash,
    stories_graceful,
    stories_hung,
    stories_offsets,
    stories_rocketmq,
    stories_static,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.harness.group.outcome import Outcome

__all__ = [
    "STORIES",
    "main",
    "stories_brokers",
    "stories_crash",
    "stories_graceful",
    "stories_hung",
    "stories_offsets",
    "stories_rocketmq",
    "stories_static",
]  # imported to be registered

_OUT = Path("chaos-out")
#: Whose faults are faults of holdfast.
_OURS = ("holdfast", "loop")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One telling of a story. `error`: it did not come to its end."""

    story: str
    protocol: Protocol
    kind: Kind
    seed: int
    seconds: float
    records: int = 0
    repeats: int = 0
    unexcused: int = 0
    together: int = 0
    #: None = not known: it did not come to its end.
    lost: int | None = None
    pause_s: float = 0.0
    faults: list[str] = field(default_factory=list)
    group: str = ""
    #: Where the audit of what members told and the ledger do not say the same; None = not asked.
    audit: list[str] | None = None
    error: str | None = None


class Servers:
    """Brokers, started when the first story asks for them."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    @cached_property
    def _kafka(self) -> KafkaServer:
        return self._stack.enter_context(KafkaServer())

    @cached_property
    def _three_kafkas(self) -> KafkaServer:
        return self._stack.enter_context(KafkaServer(brokers=3))

    @cached_property
    def _rocketmq(self) -> RocketMQServer:
        return self._stack.enter_context(RocketMQServer())

    @cached_property
    def _two_brokers(self) -> RocketMQServer:
        return self._stack.enter_context(RocketMQServer(brokers=2))

    def of(self, story: Story, protocol: Protocol) -> KafkaServer | RocketMQServer:
        """The one that has what it needs."""
        if protocol != "rocketmq":
            return self._kafka if story.brokers == 1 else self._three_kafkas
        return self._rocketmq if story.brokers == 1 else self._two_brokers


def run(
    story: Story,
    server: KafkaServer | RocketMQServer,
    redis_url: str,
    protocol: Protocol,
    seed: int,
    kind: Kind,
    audited: Audited | None = None,
) -> Run:
    """Play it once and judge. The files of a run that went wrong are kept under chaos-out/."""
    if kind not in TELL:
        audited = None
    home = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    began = time.monotonic()
    head = {"story": story.name, "protocol": protocol, "kind": kind, "seed": seed}
    outcome: Outcome | None
    failed: str | None
    try:
        told = story if audited is None else audited.telling(story)
        outcome, failed = told.tell(server, redis_url, home, protocol, seed, kind), None
    except FieldError as error:
        outcome, failed = error.outcome, str(error)
    made = Run(**head, seconds=round(time.monotonic() - began, 1), error=failed)  # type: ignore[arg-type]
    if outcome is not None:
        made = replace(
            made,
            records=len(outcome.produced),
            repeats=len(outcome.repeats),
            unexcused=len(outcome.unexcused),
            together=len(outcome.concurrent),
            lost=None if failed else outcome.lost,
            pause_s=round(outcome.longest_pause_s, 2),
            faults=[] if failed else story.faults(outcome),
            group=outcome.group,
        )
        if audited is not None and not failed:
            audited.add(outcome)
    if kind in _OURS and (made.faults or made.error):
        shutil.copytree(home, _OUT / f"{story.name}-{protocol}-{seed}", dirs_exist_ok=True)
    shutil.rmtree(home, ignore_errors=True)
    return made


def table(runs: Iterable[Run]) -> str:
    """One row a story, protocol and kind."""
    groups: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
    for each in runs:
        groups[(each.story, each.protocol, each.kind)].append(each)
    rows = [
        (
            "story",
            "protocol",
            "kind",
            "runs",
            "records",
            "in hand",
            "not excused",
            "at once",
            "lost",
            "pause s",
            "faulty",
        )
    ]
    for (name, protocol, kind), found in groups.items():
        rows.append(
            (
                name,
                protocol,
                kind,
                str(len(found)),
                str(sum(each.records for each in found)),
                str(sum(each.repeats - each.unexcused for each in found)),
                str(sum(each.unexcused for each in found)),
                str(sum(each.together for each in found)),
                str(sum(each.lost or 0 for each in found)) + ("?" if any(each.lost is None for each in found) else ""),
                f"{max(each.pause_s for each in found):.1f}",
                str(sum(bool(each.faults or each.error) for each in found)),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < 3 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def main() -> int:
    """Status 1 where holdfast broke a promise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5, help="how often each is told")
    parser.add_argument("--seed", type=int, default=1, help="of the first telling; the next ones count on")
    parser.add_argument("--only", nargs="*", default=[], help="stories (all by default); the start of a name is enough")
    parser.add_argument("--backlog", type=int, default=0, help="orders that one partition has when a story begins")
    parser.add_argument("--kinds", nargs="*", default=["holdfast"], choices=KINDS)
    parser.add_argument("--protocols", nargs="*", default=list(EVERYWHERE), choices=EVERYWHERE)
    asked = parser.parse_args()
    stories = [each for name, each in STORIES.items() if not asked.only or name.startswith(tuple(asked.only))]
    chosen = [replace(each, backlog=asked.backlog) for each in stories]
    if not chosen:
        parser.error(f"no such story; there are: {', '.join(STORIES)}")
    _OUT.mkdir(exist_ok=True)
    runs: list[Run] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-chaos-events-")))
        audited = Audited(folder)
        store, servers = stack.enter_context(RedisServer()), Servers(stack)
        for seed in range(asked.seed, asked.seed + asked.count):
            for story in chosen:
                for protocol in (each for each in asked.protocols if each in story.protocols):
                    for kind in (each for each in asked.kinds if each in story.kinds and each in kinds_on(protocol)):
                        made = run(story, servers.of(story, protocol), store.url, protocol, seed, kind, audited)
                        runs.append(made)
                        print(_line(made), flush=True)
        runs = _audit(runs, audited)
    machine = {"system": platform.platform(), "python": platform.python_version()}
    result = {"machine": machine, "arguments": vars(asked), "runs": [asdict(each) for each in runs]}
    path = _OUT / f"chaos-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps(result, indent=1))
    print(f"\n{table(runs)}\n\n{path}")
    return int(any(each.faults or each.error or each.audit for each in runs if each.kind in _OURS))


def _audit(runs: list[Run], audited: Audited) -> list[Run]:
    """The runs with what one audit of all that was told finds; it is kept, where it does not say the same."""
    if not audited.accounts:
        return runs
    print(f"\nthe audit of what {len(audited.accounts)} groups have told", flush=True)
    found = audited.judge()
    for each in runs:
        for line in found.get(each.group, ()):
            print(f"{each.story} {each.protocol} {each.kind} seed {each.seed}: {line}")
    if any(found.values()):
        shutil.copytree(audited.folder, _OUT / "audit", dirs_exist_ok=True)
    print(f"it says the same as the ledger of {sum(not each for each in found.values())} of {len(found)}")
    return [replace(each, audit=found.get(each.group)) for each in runs]


def _line(made: Run) -> str:
    head = f"{made.story} {made.protocol} {made.kind} seed {made.seed} ({made.seconds} s)"
    lost = "?" if made.lost is None else made.lost
    said = f"{made.records} records, {made.repeats} repeats ({made.unexcused} not excused), {lost} lost"
    return "\n    ".join(
        [f"{head}: {said}, pause {made.pause_s} s", *made.faults, *(made.error or "").splitlines()[:1]]
    )


if __name__ == "__main__":
    sys.exit(main())
