"""The audit: events a second of the job, from files to tables; of a stream; and of its step without Spark around it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tests.benchmarks.on_spark.cpu import used_s
from tests.benchmarks.registry import Row, benchmark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.lab import Lab

_MEMBERS, _PARTITIONS, _SPANS = 8, 24, 10
_AT_MS = 1_700_000_000_000
_REMEMBER_S = 120
_CONF = {"spark.driver.memory": "3g", "spark.ui.showConsoleProgress": "false"}


def events(spans: int) -> Iterator[tuple[int, str]]:
    """Member and line: members that flush each partition once a second, ten spans of ten records each; one record of
    a thousand is executed twice, one of five thousand lost."""
    seqs = [0] * _MEMBERS
    counts = [0] * _MEMBERS

    def line(member: int, at_ms: int, kind: str, **fields: Any) -> tuple[int, str]:
        stamp = {"v": 1, "kind": kind, "group": "bench", "member": f"m-{member}", "run": f"{member:016x}"}
        seqs[member] += 1
        return member, json.dumps(stamp | {"seq": seqs[member] - 1, "at_ms": at_ms, "dropped": 0} | fields)

    def place(partition: int, position: int) -> dict[str, Any]:
        at = {"topic": "t", "partition": str(partition), "epoch": 1, "in_flight": 0}
        return at | {"position": position, "end": position}

    for member in range(_MEMBERS):
        mine = [place(each, 0) for each in range(member, _PARTITIONS, _MEMBERS)]
        yield line(member, _AT_MS, "assigned", partitions=mine, trigger="assigned")
    seconds = spans // (_PARTITIONS * _SPANS)
    for second in range(seconds):
        now = _AT_MS + second * 1000 + 1000
        for partition in range(_PARTITIONS):
            member, base = partition % _MEMBERS, second * _SPANS * 10
            told = []
            for nth in range(_SPANS):
                first = base + nth * 10
                lost, twice = first % 5000 == 10, first % 1000 == 20
                span = {
                    "first": first + lost - twice,
                    "next": first + 10,
                    "outcome": "handled",
                    "records": 10 - lost + twice,
                }
                began = now - 1000 + nth * 100
                told.append(span | {"began_ms": began, "ended_ms": began + 90})
                counts[member] += 10 - lost + twice
            yield line(member, now, "span", topic="t", partition=str(partition), epoch=1, spans=told, keys=None)
        if second % 5 == 0:
            for member in range(_MEMBERS):
                mine = [place(each, (second + 1) * _SPANS * 10) for each in range(member, _PARTITIONS, _MEMBERS)]
                yield line(member, now, "progress", partitions=mine)
    for member in range(_MEMBERS):
        mine = [place(each, seconds * _SPANS * 10) for each in range(member, _PARTITIONS, _MEMBERS)]
        yield line(member, _AT_MS + seconds * 1000 + 1000, "revoked", partitions=mine, trigger="leave")
        yield line(
            member,
            _AT_MS + seconds * 1000 + 1000,
            "stopped",
            clean=True,
            records={"handled": counts[member]},
            in_hand=0,
        )


def write(folder: Path, spans: int) -> int:
    """One file a member. How many lines."""
    files = [(folder / f"{member}.jsonl").open("w") for member in range(_MEMBERS)]
    lines = 0
    for member, line in events(spans):
        files[member].write(line + "\n")
        lines += 1
    for each in files:
        each.close()
    return lines


@benchmark("audit-job")
def audit_rates(lab: Lab) -> list[Row]:
    """Events a second; each of ten spans, with a hundred records."""
    spans = 20_000 if lab.quick else 1_000_000
    with TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "in").mkdir()
        lines = write(folder / "in", spans)
        return [_files(folder, lines), _job(folder, lines), *_stream(folder, spans // 5), *_live(spans // 5)]


def _rate(what: str, events: int, took_s: float, cpu_s: float) -> Row:
    note = f"{cpu_s / events * 1e6:.0f} us of processor an event"
    return Row(what=f"{what}, {events:,} events", figure=events / took_s, unit=" events/s", note=note)


def _files(folder: Path, lines: int) -> Row:
    from holdfast.adapters.sqlite.tables import SqliteTables  # noqa: PLC0415 - as the command has it
    from holdfast.tools.audit_report.judge.reading import judged_files  # noqa: PLC0415 - as below
    from holdfast.tools.audit_report.judge.settings import AuditSettings  # noqa: PLC0415 - as below

    began, cpu_s = time.perf_counter(), time.process_time()
    with SqliteTables() as tables:
        tables.add(judged_files([str(folder / "in")], AuditSettings()))
    return _rate("audit of files, without Spark", lines, time.perf_counter() - began, time.process_time() - cpu_s)


def _job(folder: Path, lines: int) -> Row:
    from holdfast.adapters.spark.audit import audit  # noqa: PLC0415 - what is not asked for needs no Spark
    from tests.spark.session import local_session  # noqa: PLC0415 - as above

    spark = local_session(folder / "warehouse", _CONF)
    try:
        began, cpu = time.perf_counter(), used_s()
        with audit(spark, str(folder / "in")) as found:
            found.write(str(folder / "out"))
        return _rate("audit of files to Parquet, by Spark", lines, time.perf_counter() - began, used_s() - cpu)
    finally:
        spark.stop()


def _stream(folder: Path, spans: int) -> list[Row]:
    """One group, in twenty batches."""
    from holdfast.adapters.spark.audit import LiveSettings, follow, stream  # noqa: PLC0415 - as above
    from tests.spark.session import local_session  # noqa: PLC0415 - as above

    told = [line for _, line in events(spans)]
    (folder / "stream").mkdir()
    size = len(told) // 20 + 1
    for number in range(20):
        file = folder / "stream" / f"{number:02}.jsonl"
        file.write_text("\n".join(told[number * size : (number + 1) * size]))
        os.utime(file, (1_700_000_000 + number,) * 2)
    spark = local_session(folder / "warehouse", _CONF)
    try:
        began, cpu = time.perf_counter(), used_s()
        lines = stream(spark, str(folder / "stream"), options={"maxFilesPerTrigger": "1"})
        asked, now = LiveSettings(remember_s=_REMEMBER_S), {"availableNow": True}
        output, checkpoint = str(folder / "told"), str(folder / "checkpoint")
        query = follow(lines, output=output, checkpoint=checkpoint, settings=asked, trigger=now)
        query.awaitTermination()
        rate = _rate("audit of a stream, one group", len(told), time.perf_counter() - began, used_s() - cpu)
        states = [each["stateOperators"][0] for each in query.recentProgress if each["numInputRows"]]
    finally:
        spark.stop()
    sizes = [each["customMetrics"]["stateOnCurrentVersionSizeBytes"] for each in states]
    return [rate, _flat("its state in Spark's store at the end, against a quarter of the way", sizes, 1e3, " kB")]


def _flat(what: str, sizes: list[int], unit: float, named: str) -> Row:
    return Row(what=what, figure=sizes[-1] / unit, unit=named, ratio=sizes[-1] / sizes[len(sizes) // 4])


def _live(spans: int) -> list[Row]:
    from holdfast.tools.audit_report.judge.kept import LiveSettings  # noqa: PLC0415 - as above
    from holdfast.tools.audit_report.judge.live import LiveGroup  # noqa: PLC0415 - as above

    live, sizes = LiveGroup("bench", LiveSettings(remember_s=_REMEMBER_S)), []
    lines = [line for _, line in events(spans)]
    step = 30 * (_PARTITIONS + 2)
    began, cpu_s = time.perf_counter(), time.process_time()
    for first in range(0, len(lines), step):
        live.feed(map(json.loads, lines[first : first + step]))
        live.settle()
        sizes.append(len(json.dumps(live.state())))
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
    what = "the same without Spark, half a minute of events at a time"
    return [_rate(what, len(lines), took_s, cpu_s), _flat("its state, as JSON", sizes, 1e6, " MB")]
