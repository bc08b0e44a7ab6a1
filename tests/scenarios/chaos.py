"""`python -m tests.scenarios.chaos`: the scenarios again and again, also with plain loops; a table, and chaos-out/."""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.scenarios import stories_crash, stories_graceful, stories_offsets
from tests.scenarios.config import KINDS, PROTOCOLS, Kind, Protocol
from tests.scenarios.field import FieldError
from tests.scenarios.story import STORIES, Story
from tests.servers.kafka import KafkaServer
from tests.servers.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.scenarios.outcome import Outcome

__all__ = ["STORIES", "main", "stories_crash", "stories_graceful", "stories_offsets"]  # imported to be registered

_OUT = Path("chaos-out")


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
    error: str | None = None


def run(story: Story, kafka: KafkaServer, redis_url: str, protocol: Protocol, seed: int, kind: Kind) -> Run:
    """Play it once and judge. The files of a run that went wrong are kept under chaos-out/."""
    home = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    began = time.monotonic()
    head = {"story": story.name, "protocol": protocol, "kind": kind, "seed": seed}
    outcome: Outcome | None
    failed: str | None
    try:
        outcome, failed = story.tell(kafka, redis_url, home, protocol, seed, kind), None
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
        )
    if kind == "holdfast" and (made.faults or made.error):
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
    parser.add_argument("--kinds", nargs="*", default=["holdfast"], choices=KINDS)
    parser.add_argument("--protocols", nargs="*", default=list(PROTOCOLS), choices=PROTOCOLS)
    asked = parser.parse_args()
    chosen = [each for name, each in STORIES.items() if not asked.only or name.startswith(tuple(asked.only))]
    if not chosen:
        parser.error(f"no such story; there are: {', '.join(STORIES)}")
    _OUT.mkdir(exist_ok=True)
    runs: list[Run] = []
    with RedisServer() as store, KafkaServer() as kafka:
        for seed in range(asked.seed, asked.seed + asked.count):
            for story in chosen:
                for protocol in asked.protocols:
                    for kind in (each for each in asked.kinds if each in story.kinds):
                        made = run(story, kafka, store.url, protocol, seed, kind)
                        runs.append(made)
                        print(_line(made), flush=True)
    machine = {"system": platform.platform(), "python": platform.python_version()}
    result = {"machine": machine, "arguments": vars(asked), "runs": [asdict(each) for each in runs]}
    path = _OUT / f"chaos-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps(result, indent=1))
    print(f"\n{table(runs)}\n\n{path}")
    return int(any(each.faults or each.error for each in runs if each.kind == "holdfast"))


def _line(made: Run) -> str:
    head = f"{made.story} {made.protocol} {made.kind} seed {made.seed} ({made.seconds} s)"
    lost = "?" if made.lost is None else made.lost
    said = f"{made.records} records, {made.repeats} repeats ({made.unexcused} not excused), {lost} lost"
    return "\n    ".join(
        [f"{head}: {said}, pause {made.pause_s} s", *made.faults, *(made.error or "").splitlines()[:1]]
    )


if __name__ == "__main__":
    sys.exit(main())
