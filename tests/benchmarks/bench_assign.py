"""`sticky` for groups that few have, beside Kafka's own class and kafka-python's."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from holdfast.plugin.assign.members import Subscriber
from holdfast.plugin.assign.sticky import sticky
from holdfast.records import Partition
from tests.benchmarks.registry import Goal, Row, benchmark
from tests.golden import kafka
from tests.golden.oracle import KAFKA_LIB, Oracle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.benchmarks.lab import Lab

_MEMBERS, _TOPICS = 1_000, 100
_KAFKA_PYTHON = "kafka-python==3.0.12"
_HERE = Path(__file__).parent
_OUT = _HERE.parents[1] / "bench-out" / "kafka-python"
#: The JVM as a client would run it: its compilers have their time.
_JVM = ("-Xmx2g",)
_WARM_UPS = 5
_LONG_MS = 2_000
_PATIENCE_S = 600.0


class _Case(NamedTuple):
    what: str
    members: list[Subscriber]
    previous: Mapping[Partition, str]


@benchmark("assign")
def assign(lab: Lab) -> list[Row]:
    """A group begins, one more joins, half of them leave; all want the same topics, or each some half of them."""
    rounds = 2 if lab.quick else 9
    rows: list[Row] = []
    with Oracle("KafkaAssignors.java", KAFKA_LIB, options=_JVM) as oracle:
        for wish, goal_ms in (("equal subscriptions", 20), ("differing subscriptions", 200)):
            differ = wish.startswith("differing")
            partitions = _partitions(10_000)
            begins, *rest = _cases(partitions, differ=differ)
            ours = {case.what: _ours(case, partitions, rounds) for case in (begins, *rest)}
            rows += [
                Row(
                    what=f"1,000 members, 10,000 partitions, {wish}, {what}",
                    figure=took_ms,
                    unit=" ms",
                    goal=Goal(value=goal_ms, at_least=False, unit=" ms"),
                    note="of processor",
                )
                for what, took_ms in ours.items()
            ]
            rows += [
                Row(
                    what=f"Java, StickyAssignor, warm JVM, {wish}, {case.what}",
                    figure=(theirs := _java(oracle, case, partitions, rounds)),
                    unit=" ms",
                    note=f"{theirs / ours[case.what]:.1f} times as long; of its thread's processor",
                )
                for case in (begins, *rest)
            ]
            rows.append(_kafka_python(begins, partitions, wish, ours[begins.what]))
            many = _partitions(100_000)
            worst = max(_ours(case, many, 2 if lab.quick else 5) for case in _cases(many, differ=differ))
            rows.append(
                Row(
                    what=f"100,000 partitions, {wish}, the longest of these",
                    figure=worst,
                    unit=" ms",
                    note=f"{worst / max(ours.values()):.1f} times that of 10,000",
                )
            )
    return rows


def _partitions(count: int) -> list[Partition]:
    return [Partition(f"t{i:03}", number) for i in range(_TOPICS) for number in range(count // _TOPICS)]


def _cases(partitions: list[Partition], *, differ: bool) -> list[_Case]:
    rnd = random.Random(1)
    topics = sorted({each.topic for each in partitions})
    members = [
        Subscriber(id=f"m{i:04}", topics=frozenset(rnd.sample(topics, len(topics) // 2) if differ else topics))
        for i in range(_MEMBERS + 1)
    ]
    before = sticky(members[:-1], partitions, {})
    return [
        _Case("from nothing", members[:-1], {}),
        _Case("one joins", members, before),
        _Case("half of them leave", members[::2], before),
    ]


def _ours(case: _Case, partitions: list[Partition], rounds: int) -> float:
    found = []
    for _ in range(rounds):
        began = time.process_time()
        sticky(case.members, partitions, case.previous)
        found.append((time.process_time() - began) * 1000)
    return median(found)


def _java(oracle: Oracle, case: _Case, partitions: list[Partition], rounds: int) -> float:
    ids = {member.id for member in case.members}
    owned = kafka.owned_in({each: owner for each, owner in case.previous.items() if owner in ids}, 1)
    [first_ms] = kafka.ask(oracle, "sticky", case.members, partitions, owned).took_ms
    # What takes seconds is warm after one, and need not be done so often.
    warm_ups, rounds = (0, 2) if first_ms > _LONG_MS else (_WARM_UPS, rounds)
    asked = kafka.ask(oracle, "sticky", case.members, partitions, owned, rounds=warm_ups + rounds)
    return median(asked.took_ms[warm_ups:])


def _kafka_python(case: _Case, partitions: list[Partition], wish: str, ours_ms: float) -> Row:
    """Installed for this alone, where a package index can be reached."""
    what = f"kafka-python, sticky, {wish}, {case.what}"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(_OUT), _KAFKA_PYTHON]
    if not (_OUT / "kafka").exists() and subprocess.run(install, capture_output=True, check=False).returncode:
        return Row(what=what, figure=float("nan"), unit=" ms", note=f"pip could not install {_KAFKA_PYTHON}")
    group = {
        "members": {member.id: sorted(member.topics) for member in case.members},
        "topics": {f"t{i:03}": len(partitions) // _TOPICS for i in range(_TOPICS)},
    }
    done = subprocess.run(
        [sys.executable, str(_HERE / "on_kafka" / "kafka_python_sticky.py")],
        input=json.dumps(group),
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE_S,
        env=os.environ | {"PYTHONPATH": str(_OUT)},
    )
    if done.returncode:
        raise RuntimeError(f"{what}: {done.stderr[-2_000:]}")
    took_ms = float(done.stdout)
    note = f"{took_ms / ours_ms:,.0f} times as long; of processor"
    return Row(what=what, figure=took_ms, unit=" ms", note=note)
