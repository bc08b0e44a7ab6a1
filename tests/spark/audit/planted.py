"""What happens to event files, planted one by one: a partition in the hands of three runs, and one's events damaged.

The truth is known here and only here. A verdict is right, or "unknown"; and nobody is told that all is well where not
all is known.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Row = dict[str, Any]
    Event = dict[str, Any]

AT_MS = 1_700_000_000_000
_HOUR_MS = 3_600_000
_EACH = 100
#: Two of the three, that lost something: the first goes past records, as does the second; the third begins beyond some.
LOSSES = frozenset((50, 51, 52, 150, 151, 152, 200, 201, 202))
_NAMES = ("first", "second", "third")


@dataclass(slots=True)
class Case:
    """One fault. `files`: name -> content, of the fault's own folder."""

    name: str
    lost: frozenset[int]
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """Its name: of the fault, and of what was lost beside it."""
        return f"{self.name}{', and records are lost' if self.lost else ''}"

    @property
    def lines(self) -> list[str]:
        """As a stream brings them: of whole files, in the order of their times as far as that can be read."""
        found = []
        for name, content in self.files.items():
            try:
                text = (gzip.decompress(content) if name.endswith(".gz") else content).decode(errors="replace")
            except EOFError:
                continue
            found += [line for line in text.split("\n") if line]
        return found


def run(number: int) -> str:
    """Its id."""
    return f"{number + 1:016x}"


def _story(group: str, lost: frozenset[int], *, epochs: bool) -> list[list[Event]]:
    """The events of the three runs, one after the other on one partition."""
    return [_run(group, number, lost, epochs=epochs) for number in range(len(_NAMES))]


def _run(group: str, number: int, lost: frozenset[int], *, epochs: bool) -> list[Event]:
    began, first, after = AT_MS + number * 10_000, number * _EACH, (number + 1) * _EACH
    position = next(each for each in range(first, after) if each not in lost)
    place: dict[str, Any] = {"topic": "t", "partition": "0", "epoch": number + 1 if epochs else None, "end": 3 * _EACH}
    events: list[Event] = []

    def tell(kind: str, at: int, **fields: Any) -> None:
        stamp = {"v": 1, "kind": kind, "group": group, "member": _NAMES[number], "run": run(number)}
        events.append(stamp | {"seq": len(events), "at_ms": began + at, "dropped": 0} | fields)

    def spans(low: int, high: int, at: int) -> int:
        whole: list[Row] = []
        handled, begin = 0, low
        for offset in range(low, high + 1):
            if offset == high or offset in lost:
                if begin < offset:
                    times = {"began_ms": began + at - 900, "ended_ms": began + at}
                    span = {"first": begin, "next": offset, "outcome": "handled", "records": offset - begin}
                    whole.append(span | times)
                    handled += offset - begin
                begin = offset + 1
        tell("span", at, topic="t", partition="0", epoch=place["epoch"], spans=whole, keys=None, ordered=True)
        return handled

    tell("started", 0, protocol="eager", source="loop", settings={})
    tell("assigned", 10, partitions=[place | {"position": position, "in_flight": None}], trigger="assigned")
    handled = 0
    for low in range(first, after, 20):
        handled += spans(max(low, position), low + 20, 1_000 + (low - first) * 50)
        here = place | {"position": low + 20, "in_flight": 0}
        tell("progress", 1_010 + (low - first) * 50, partitions=[here])
    tell("revoked", 6_000, partitions=[place | {"position": after, "in_flight": 0}], trigger="revoked")
    tell("stopped", 7_000, clean=True, records={"handled": handled}, in_hand=0, error=None)
    return events


def _lines(events: Sequence[Event]) -> bytes:
    return "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in events).encode()


def _shifted(events: Sequence[Event], by_ms: int) -> list[Event]:
    """As a clock has it that is so far from the others'."""
    text = json.dumps(list(events))
    for each in sorted({each for event in events for each in _times(event)}, reverse=by_ms > 0):
        text = text.replace(str(each), str(each + by_ms))
    return list(json.loads(text))


def _times(event: Event) -> list[int]:
    spans = event.get("spans") or ()
    return [event["at_ms"], *(each[name] for each in spans for name in ("began_ms", "ended_ms"))]


def _told_less(events: Sequence[Event]) -> list[Event]:
    """A span of an event is gone, and no number is missing."""
    again = json.loads(json.dumps(list(events)))
    span = [each for each in again if each["kind"] == "span"][2]
    span["spans"] = span["spans"][1:]
    return list(again)


def _renumbered(events: Sequence[Event], without: str) -> list[Event]:
    kept = [dict(each) for each in events if each["kind"] != without]
    return [each | {"seq": number} for number, each in enumerate(kept)]


_KILLED = slice(None, 8)
#: Name -> whether the members have epochs, whose events it happens to, and what becomes of their file.
FAULTS: Mapping[str, tuple[bool, int, Callable[[list[Event]], Mapping[str, bytes]]]] = {
    "no fault": (True, 1, lambda told: {"0000.jsonl": _lines(told)}),
    "a later version": (True, 1, lambda told: {"0000.jsonl": _lines([each | {"v": 2} for each in told])}),
    "a later version, of the last owner": (
        True,
        2,
        lambda told: {"0000.jsonl": _lines([each | {"v": 2} for each in told])},
    ),
    "an empty file": (True, 1, lambda _: {"0000.jsonl": b""}),
    "an empty file, of the last owner": (True, 2, lambda _: {"0000.jsonl": b""}),
    "no file": (True, 1, lambda _: {}),
    "bytes that are no text": (True, 1, lambda _: {"0000.jsonl": bytes(range(128, 256)) * 9}),
    "a broken archive": (True, 1, lambda told: {"0000.jsonl.gz": gzip.compress(_lines(told))[:30]}),
    "cut after half of its lines": (True, 1, lambda told: {"0000.jsonl": _lines(told[:7])}),
    "cut in a line": (True, 1, lambda told: {"0000.jsonl": _lines(told)[:1200]}),
    "cut in its first line": (True, 1, lambda told: {"0000.jsonl": _lines(told)[:90]}),
    "an event is missing": (True, 1, lambda told: {"0000.jsonl": _lines([*told[:2], *told[3:]])}),
    "its assignment is missing": (True, 1, lambda told: {"0000.jsonl": _lines([told[0], *told[2:]])}),
    "twice the same": (True, 1, lambda told: {"0000.jsonl": _lines(told), "0001.jsonl": _lines(told)}),
    "its last word counts more": (True, 1, lambda told: {"0000.jsonl": _lines(_told_less(told))}),
    "a clock an hour ahead": (True, 1, lambda told: {"0000.jsonl": _lines(_shifted(told, _HOUR_MS))}),
    "a clock an hour behind": (True, 1, lambda told: {"0000.jsonl": _lines(_shifted(told, -_HOUR_MS))}),
    "no epochs: a later version": (
        False,
        1,
        lambda told: {"0000.jsonl": _lines([each | {"v": 2} for each in told])},
    ),
    "no epochs: cut after its first line": (False, 1, lambda told: {"0000.jsonl": _lines(told[:1])}),
    "no epochs: killed, a clock an hour behind": (
        False,
        1,
        lambda told: {"0000.jsonl": _lines(_shifted(told[_KILLED], -_HOUR_MS))},
    ),
}
#: Those of which the group's name cannot be read: they cast doubt on all that is judged with them.
NAMELESS = frozenset(
    ("an empty file", "an empty file, of the last owner", "bytes that are no text", "a broken archive")
)


def cases() -> list[Case]:
    """Forty: each fault, without and with records that are lost."""
    found = []
    for lost in (frozenset[int](), LOSSES):
        for name, (epochs, which, broken) in FAULTS.items():
            case = Case(name, lost)
            for number, told in enumerate(_story(case.group, lost, epochs=epochs)):
                files = broken(told) if number == which else {"0000.jsonl": _lines(told)}
                stem = f"{_NAMES[number]}-{run(number)}"
                case.files |= {f"{stem}-{file}": content for file, content in files.items()}
            found.append(case)
    return found


def verdicts(case: Case, gaps: Sequence[Row]) -> dict[str, set[int]]:
    """Offsets by what was said of them."""
    found: dict[str, set[int]] = {}
    for row in gaps:
        if row["group"] == case.group:
            found.setdefault(row["verdict"], set()).update(range(row["first"], row["next"]))
    return found


def said(case: Case, gaps: Sequence[Row]) -> str:
    """In a few words."""
    counts = [f"{len(offsets)} {verdict}" for verdict, offsets in sorted(verdicts(case, gaps).items())]
    return ", ".join(counts) or "all known"


def documented() -> dict[str, tuple[str, str]]:
    """What the page says of each case: of files, and of a stream."""
    table = (Path(__file__).parents[3] / "docs" / "operations" / "audit.md").read_text().split("<!-- planted -->")[1]
    found: dict[str, tuple[str, str]] = {}
    for line in table.strip().splitlines()[2:]:
        name, *cells = (each.strip() for each in line.strip("|").split("|"))
        found[Case(name, frozenset()).group] = (cells[0], cells[1])
        found[Case(name, LOSSES).group] = (cells[2], cells[3])
    return found


def wrong(case: Case, gaps: Sequence[Row], mood: str, below: int = 3 * _EACH) -> list[str]:
    """What was said and is not so, or was not said. `below`: so far it was to be judged."""
    said, truly = verdicts(case, gaps), {offset for offset in case.lost if offset < below}
    lost, unknown = said.pop("lost", set()), said.pop("unknown", set())
    found = []
    if lost - truly:
        found.append(f"{len(lost - truly)} are said to be lost and are not")
    if truly - lost - unknown:
        found.append(f"{len(truly - lost - unknown)} are lost, and it is not said")
    if said:
        found.append(f"{ ({name: len(offsets) for name, offsets in said.items()}) }, and they were done or lost")
    if (truly or unknown) and mood == "good":
        found.append("all is said to be well")
    if lost and mood != "bad":
        found.append("lost, and not bad")
    return [f"{case.group}: {each}" for each in found]
