"""Events in files: whole lines whatever happens to the process or to the disk, and a loop's own words in them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Audit, FileEvents, LoopAudit
from holdfast.errors import EventUnreadable, SettingError
from holdfast.plugin.audit.schema import Assigned, AuditPartition, Outcome, Progress, Revoked, Spans, Stopped, decode
from holdfast.timing import Deadline
from holdfast.tools.audit_report.judge.reading import judged_files
from holdfast.tools.audit_report.judge.settings import AuditSettings

if TYPE_CHECKING:
    from holdfast.plugin.audit.schema import Event

ROOT = Path(__file__).parents[2]

#: Tells of one record after the other, in many small flushes, until it is killed.
_ENDLESS = """
import sys, time
from holdfast import Audit, FileEvents, LoopAudit
told = LoopAudit(Audit(FileEvents(sys.argv[1]), member="m", flush_s=0.001), "g")
offset = 0
while True:
    told.handled("orders", 0, offset)
    offset += 2
    time.sleep(0.0005)
"""
#: The same on a disk where a file may not grow beyond 2,000 bytes: writes end in the middle of a line.
_FULL = """
import resource, sys
from holdfast import Audit, FileEvents, LoopAudit
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
told = LoopAudit(Audit(FileEvents(sys.argv[1]), member="m", flush_s=0.001), "g")
for offset in range(40):
    told.handled("orders", 0, 2 * offset)
    if offset % 4 == 0:
        told.revoked([("orders", 0)])
told.stopped()
"""
#: Made before forks, of which one child never says a word.
_FORKED = """
import os, sys
from holdfast import Audit, FileEvents, LoopAudit
with LoopAudit(Audit(FileEvents(sys.argv[1]), flush_s=3_600), "g") as told:
    told.assigned({("orders", 0): 7})
    told.handled("orders", 0, 7)
    for number in range(3):
        child = os.fork()
        if child == 0:
            if number:
                told.handled("orders", number, 0)
                told.committed({("orders", number): 1})
            told.stopped()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
"""


_ROTATING: tuple[dict[str, Any], ...] = ({"rotate_bytes": 5}, {"rotate_s": 1e-9}, {})


def lines(folder: Path) -> list[bytes]:
    """Of each file; a last one that has no end is another line."""
    return [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_bytes().split(b"\n") if line]


def read(folder: Path) -> list[Event]:
    """As a reader does it: what is cut is passed over."""
    found = []
    for line in lines(folder):
        try:
            found.append(decode(line))
        except EventUnreadable:
            continue
    return found


def handled(events: list[Event]) -> list[int]:
    return sorted(span.first or 0 for event in events if isinstance(event.body, Spans) for span in event.body.spans)


def test_a_process_that_is_killed_leaves_whole_lines_but_for_the_last(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", _ENDLESS, str(tmp_path)], cwd=ROOT)
    try:
        while len(lines(tmp_path)) < 50:
            assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    unreadable = len(lines(tmp_path)) - len(read(tmp_path))
    assert unreadable <= 1
    events = read(tmp_path)
    assert [event.stamp.seq for event in events] == list(range(len(events)))
    assert handled(events) == [2 * number for number in range(len(handled(events)))]


def test_a_disk_that_takes_half_a_line_gets_it_whole_in_the_next_file(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _FULL, str(tmp_path)], cwd=ROOT, check=True, capture_output=True)
    events = read(tmp_path)
    assert [event.stamp.seq for event in events] == list(range(len(events)))
    assert isinstance(events[-1].body, Stopped)
    assert handled(events) == [2 * number for number in range(40)]
    assert len(list(tmp_path.glob("*.jsonl"))) > 1
    assert all(path.stat().st_size <= 2_000 for path in tmp_path.glob("*.jsonl"))


def test_each_process_that_speaks_after_a_fork_is_a_run_of_its_own(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _FORKED, str(tmp_path)], cwd=ROOT, check=True, capture_output=True)
    runs: dict[str, list[Event]] = {}
    for event in read(tmp_path):
        runs.setdefault(event.stamp.run, []).append(event)
    assert len(list(tmp_path.iterdir())) == len(runs) == 3
    assert len({of_run[0].stamp.member for of_run in runs.values()}) == 3
    for of_run in runs.values():
        assert [event.stamp.seq for event in of_run] == list(range(len(of_run)))
        assert of_run[-1].body == Stopped(clean=True, records={"handled": 1})
    spans = {(body.partition, handled(of_run)[0]) for of_run in runs.values() for body in spans_of(of_run)}
    assert spans == {("0", 7), ("1", 0), ("2", 0)}


def spans_of(events: list[Event]) -> list[Spans]:
    return [event.body for event in events if isinstance(event.body, Spans)]


def test_a_file_that_is_large_or_old_enough_is_followed_by_another(tmp_path: Path) -> None:
    for number, how in enumerate(_ROTATING):
        folder = tmp_path / str(number)
        sink = FileEvents(folder, **how).open("a member/with:signs", "r1")
        for line in ("first line", "second", "third"):
            assert sink.write([line], "r1") == 1
        sink.close(Deadline(0))
        names = sorted(path.name for path in folder.iterdir())
        assert names == [f"a_member_with_signs-r1-{each:04d}.jsonl" for each in range(3 if how else 1)]
        assert lines(folder) == [b"first line", b"second", b"third"]


def test_a_folder_that_is_gone_is_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    sink = FileEvents(folder, rotate_bytes=1).open("m", "r")
    assert sink.write(["one"], "r") == 1
    folder.rename(tmp_path / "elsewhere")
    assert sink.write(["two"], "r") == 0
    folder.mkdir()
    assert sink.write(["two"], "r") == 1
    assert lines(folder) == [b"two"]
    sink.close(Deadline(0))


def test_a_loop_tells_the_same_events(tmp_path: Path) -> None:
    audit = Audit(FileEvents(tmp_path), member="loop-1", keys="plain", progress_s=0.001)
    with LoopAudit(audit, "orders", source="by hand") as told:
        told.assigned({("orders", 3): 10}, {("orders", 3): 20})
        for offset in (10, 11, 14):
            told.handled("orders", 3, offset, key=f"s:{offset}")
        told.absent("orders", 3, 12, 14)
        told.handled("orders", 3, 15, outcome=Outcome.FAILED)
        told.committed({("orders", 3): 15})
        told.revoked([("orders", 3)], "lost")
    bodies = [event.body for event in read(tmp_path)]
    place = AuditPartition(topic="orders", partition="3", position=15, end=20)
    assert [body for body in bodies if isinstance(body, Assigned)] == [
        Assigned(partitions=(AuditPartition(topic="orders", partition="3", position=10, end=20),), trigger="assigned")
    ]
    assert [body for body in bodies if isinstance(body, Progress)] == [Progress(partitions=(place,))]
    assert [body for body in bodies if isinstance(body, Revoked)] == [Revoked(partitions=(place,), trigger="lost")]
    spans = [span for body in bodies if isinstance(body, Spans) for span in body.spans]
    covered = [offset for span in spans for offset in range(span.first or 0, span.next or 0)]
    assert sorted(covered) == [10, 11, 12, 13, 14, 15]
    assert {span.outcome for span in spans} <= {Outcome.HANDLED, Outcome.ABSENT, Outcome.FAILED}
    keys = [each.key for body in bodies if isinstance(body, Spans) for each in body.keys or ()]
    assert keys == ["s:10", "s:11", "s:14"]
    assert bodies[-1] == Stopped(clean=True, records={"handled": 3, "failed": 1})


def test_what_is_much_goes_in_several_events(tmp_path: Path) -> None:
    with LoopAudit(Audit(FileEvents(tmp_path), keys="plain", flush_s=3_600), "g") as told:
        for offset in range(0, 3_000, 2):
            told.handled("orders", 0, offset, key=f"s:{offset}")
    bodies = [event.body for event in read(tmp_path) if isinstance(event.body, Spans)]
    assert handled(read(tmp_path)) == list(range(0, 3_000, 2))
    assert [each.key for body in bodies for each in body.keys or ()] == [f"s:{offset}" for offset in range(0, 3_000, 2)]
    assert max(len(line) for line in lines(tmp_path)) < 200_000


def test_a_key_that_is_no_text_spoils_no_event(tmp_path: Path) -> None:
    """Of half a character, which JSON may bring: a judge can write it nowhere, and would take the event for none."""
    with LoopAudit(Audit(FileEvents(tmp_path), keys="plain"), "g") as told:
        told.assigned({("orders", 0): 0})
        for offset, key in enumerate(["s:\ud800", "s:\udc00", "s:\U0001f600", "s:\ud800"]):
            told.handled("orders", 0, offset, key=key)
        told.committed({("orders", 0): 4})
        told.revoked([("orders", 0)])
    rows = list(judged_files([str(tmp_path)], AuditSettings(complete=True)))
    [summary] = [row for table, row in rows if table == "summary"]
    assert (summary["unreadable"], summary["missing"], summary["handled"]) == (0, 0, 4)
    assert [row["key"] for table, row in rows if table == "duplicate_keys"] == ["s:\\ud800"]
    assert not [row for table, row in rows if table == "gaps"]


def test_keys_that_are_long_fit_into_a_message(tmp_path: Path) -> None:
    """Kafka's clients take no more than 1,000,000 bytes: what is larger is lost, with all that it tells."""
    long, longer = f"s:{'k' * 8_000}", f"s:{'ü' * 8_000}"
    with LoopAudit(Audit(FileEvents(tmp_path), keys="plain", flush_s=3_600), "g") as told:
        for offset in range(500):
            told.handled("orders", 0, offset, key=f"{long if offset % 2 else longer}{offset}")
        told.handled("orders", 0, 500, key=f"{long}1")
    assert max(len(line) for line in lines(tmp_path)) < 1_000_000
    rows = [row for table, row in judged_files([str(tmp_path)], AuditSettings()) if table == "duplicate_keys"]
    [twice] = rows
    assert (twice["offset"], twice["again_offset"]) in {(1, 500), (500, 1)}
    assert twice["key"].startswith("s:kkkk")


def test_a_loop_that_ends_by_an_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(KeyError), LoopAudit(Audit(FileEvents(tmp_path)), "g"):
        raise KeyError
    assert read(tmp_path)[-1].body == Stopped(clean=False, records={}, error="KeyError")


@pytest.mark.parametrize(
    ("field", "how"),
    [
        ("keys", {"keys": "some"}),
        ("salt", {"salt": "s"}),
        ("salt", {"keys": "hashed", "salt": ""}),
        ("member", {"member": ""}),
        ("flush_s", {"flush_s": 0}),
        ("progress_s", {"progress_s": float("inf")}),
        ("close_s", {"close_s": True}),
        ("buffer_events", {"buffer_events": 9}),
        ("buffer_events", {"buffer_events": 10.5}),
        ("events", {"events": "/var/log"}),
    ],
)
def test_a_setting_that_cannot_work_is_refused(field: str, how: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SettingError) as refused:
        Audit(**({"events": FileEvents(tmp_path)} | how))
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("field", "how"),
    [
        ("folder", {"folder": ""}),
        ("folder", {"folder": 3}),
        ("rotate_bytes", {"rotate_bytes": 0}),
        ("rotate_s", {"rotate_s": -1}),
    ],
)
def test_a_folder_that_cannot_be_one_is_refused(field: str, how: dict[str, Any]) -> None:
    with pytest.raises(SettingError) as refused:
        FileEvents(**({"folder": "events"} | how))
    assert refused.value.field == field


#: A disk that is full for a while: no byte can be written, but files can be made. Says how many files there are when it
#: was tried ten times, and what was dropped.
_FULL_FOR_A_WHILE = """
import os, resource, sys, time
from holdfast import Audit, FileEvents, LoopAudit
from holdfast.plugin.audit.files import _Files
folder, buffer_events = sys.argv[1], int(sys.argv[2])
tries, write = [0], _Files.write
def counted(self, lines, run):
    tries[0] += 1
    return write(self, lines, run)
_Files.write = counted
told = LoopAudit(Audit(FileEvents(folder), member="m", flush_s=0.001, buffer_events=buffer_events), "g")
told.handled("orders", 0, 0)
while not any(os.path.getsize(os.path.join(folder, each)) for each in os.listdir(folder)):
    time.sleep(0.001)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
began = tries[0]
for offset in range(2, 100, 2):
    told.handled("orders", 0, offset)
    told.revoked([("orders", 0)])
while tries[0] < began + 10:
    time.sleep(0.01)
print(len(os.listdir(folder)))
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
told.stopped()
print(told._book.emitter.dropped)
"""


def test_a_disk_that_is_full_for_a_while_is_not_filled_with_empty_files_and_nothing_is_lost(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _FULL_FOR_A_WHILE, str(tmp_path), "10000"]
    ran = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    files, dropped = map(int, ran.stdout.split())
    assert files <= 2
    assert dropped == 0
    assert "No space" in ran.stderr or "File too large" in ran.stderr
    events = read(tmp_path)
    assert handled(events) == list(range(0, 100, 2))
    assert [event.stamp.seq for event in events] == list(range(len(events)))


def test_what_does_not_fit_into_the_buffer_meanwhile_is_dropped_counted_and_said(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _FULL_FOR_A_WHILE, str(tmp_path), "10"]
    ran = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    _, dropped = map(int, ran.stdout.split())
    assert dropped > 0
    assert f"{dropped} events were dropped" in ran.stderr
    assert read(tmp_path)[-1].stamp.dropped == dropped
