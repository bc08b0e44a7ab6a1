"""Events go into what is kept of their group. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.plugin.audit.schema import NO_RECORDS, Outcome
from holdfast.tools.audit_report.judge.kept import FIRST, Change, JudgedPartition, Kept, Run
from holdfast.tools.audit_report.judge.owner import Owner
from holdfast.tools.audit_report.judge.times import early_ms, seconds
from holdfast.tools.audit_report.judge.unread import LATEST_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Event = Mapping[str, Any]
    #: Data that is not kept: a row of the table "lag"; an event's "keys" (offset and key of each record); a "report".
    Passing = tuple[str, dict[str, Any]]

    #: A span as an event tells it: as far as BEGAN and ENDED of what is kept.
    Told = tuple[Any, Any, str, int, int, int]

_HANDLED, _FAILED = Outcome.HANDLED.value, Outcome.FAILED.value
_NO_RECORDS = frozenset(each.value for each in NO_RECORDS)
_OUTCOMES = frozenset(each.value for each in Outcome)
#: Records of a span are spread over its time; no further than that, whatever it says.
_SPREAD_MS = 3_600_000
#: The largest number of records, and the largest offset. Sums of larger ones would not fit into a column.
_MOST = 1 << 60


def hear(kept: Kept, events: Iterable[Event]) -> Iterator[Passing]:
    """Add events to the state of their group.

    Args:
        kept: of their group.
        events: those of a run in their order. What is not beyond a run's last one is a repetition. Stamps are whole.
    """
    for event in events:
        run = kept.runs.get(event["run"])
        if run is None:
            run = kept.runs[event["run"]] = Run(member=event["member"], from_ms=event["at_ms"])
            kept.count("members")
            if kept.unheard.pop(event["run"], None) is not None:  # something was no event, and was not the last word
                run.sound = False
                kept.count("unheard", -1)
        if event["seq"] < run.next_seq:
            continue
        _stamped(kept, run, event)
        told = _KINDS.get(event["kind"])
        if told is None:
            continue
        try:
            yield from told(kept, run, event)
        except (AttributeError, KeyError, TypeError, ValueError):  # not what that kind has: as if it had not come
            run.sound = False


def pass_over(kept: Kept, unreadable: Iterable[str]) -> None:
    """Lines that are no events.

    Args:
        kept: of their group.
        unreadable: the run of each; "" where it does not say it.
    """
    for name in unreadable:
        kept.count("unreadable")
        run = kept.runs.get(name)
        if run is not None:
            run.sound = False  # whatever it was: it is not known
        elif name not in kept.unheard:
            kept.unheard[name] = kept.newest_ms
            kept.count("unheard")


def _stamped(kept: Kept, run: Run, event: Event) -> None:
    missing = event["seq"] - run.next_seq
    run.sound = run.sound and not missing and not event["dropped"]
    kept.count("events")
    kept.count("missing", missing)
    kept.count("dropped", max(event["dropped"] - run.dropped, 0))
    run.events, run.next_seq = run.events + 1, event["seq"] + 1
    run.dropped = max(run.dropped, event["dropped"])
    run.last_ms = max(run.last_ms, event["at_ms"])
    kept.newest_ms = run.heard_ms = max(kept.newest_ms, event["at_ms"])
    kept.counts["from_ms"] = min(kept.counts.get("from_ms", event["at_ms"]), event["at_ms"])
    if run.ended:  # it was silent, and counted as dead
        run.ended = False
        kept.count("killed", -1)


def _started(_: Kept, run: Run, event: Event) -> Iterator[Passing]:
    run.protocol, run.source = event.get("protocol"), event.get("source")
    yield from ()


def _stopped(kept: Kept, run: Run, event: Event) -> Iterator[Passing]:
    told = sum(event["records"].values())
    run.stopped, run.clean = True, bool(event.get("clean"))
    run.unreported = max(told - sum(run.records.values()), 0)
    kept.count("unreported", run.unreported)
    run.complete = run.sound and not event.get("in_hand") and not run.unreported
    yield from ()


def _span(kept: Kept, run: Run, event: Event) -> Iterator[Passing]:
    spans = [_checked(each) for each in event["spans"]]
    keys = [(_number_or_none(each["offset"]), _text(each["key"]), each["outcome"]) for each in event.get("keys") or ()]
    handled = [(offset, key) for offset, key, outcome in keys if outcome == Outcome.HANDLED]
    topic, partition, epoch = _text(event["topic"]), _text(event["partition"]), _number_or_none(event["epoch"])
    _counted(kept, run, event["run"], spans)
    # Offsets that are no log's say nothing: such executions are counted by key, which a stream does not do.
    in_log = [each for each in spans if each[FIRST] is not None]
    if in_log:
        place = _place(kept, topic, partition)
        _laid_down(place, _owner(place, run, event, epoch), in_log, (event["run"], epoch, event["seq"], False))
    if event.get("keys") is not None:
        row = {name: event[name] for name in ("topic", "partition", "run", "seq", "at_ms")}
        yield "keys", row | {"keys": handled}


def _counted(kept: Kept, run: Run, name: str, spans: Iterable[Told]) -> None:
    """How many records there were, and in which seconds they ended."""
    told_ms = kept.settled_ms // 1000 * 1000  # told seconds are told: the next one has it
    intake, counted = kept.intake, dict[str, int]()
    for _, _, outcome, records, began, ended in spans:
        counted[outcome] = counted.get(outcome, 0) + records
        if outcome in _NO_RECORDS:
            continue
        handled = outcome == _HANDLED
        for second_ms, part in seconds(early_ms(began, ended, records), ended, records):
            at = (name, max(second_ms, told_ms))
            sums = intake.get(at)
            if sums is None:
                sums = intake[at] = [0.0, 0.0]
            sums[0] += part
            sums[1] += part * handled
    for outcome, records in counted.items():
        run.records[outcome] = run.records.get(outcome, 0) + records
        kept.count(outcome, records)


def _laid_down(
    place: JudgedPartition, owner: Owner, spans: Iterable[Told], told_by: tuple[str, int | None, int, bool]
) -> None:
    """Spans of a log's offsets, by their partition and owner."""
    counted = place.records
    for first, next_, outcome, records, began, ended in spans:
        counted[outcome] = counted.get(outcome, 0) + records
        if outcome == _FAILED:
            continue
        if outcome not in _NO_RECORDS:
            owner.ended(first, records, began, ended)
        if owner.first is None or first < owner.first:
            owner.first = first
        if owner.next is None or next_ > owner.next:
            owner.next = next_
        place.spans.append([first, next_, outcome, records, began, ended, *told_by])


def _assigned(kept: Kept, run: Run, event: Event) -> Iterator[Passing]:
    for each in _places(event):
        place = _place(kept, each["topic"], each["partition"])
        for before in place.owners:
            if before.run == event["run"] and before.ended_by is None:
                before.to_ms, before.ended_by = event["at_ms"], "retaken"
        owner = Owner(run=event["run"], member=run.member, turn=0, epoch=each["epoch"])
        owner.trigger, owner.from_seq, owner.from_ms = event.get("trigger"), event["seq"], event["at_ms"]
        owner.position, owner.end, owner.last_end = each["position"], each["end"], each["end"]
        place.owners.append(owner)
        place.says.append([event["run"], event["seq"], event["at_ms"], each["position"], False])
        if each["position"] is not None:
            place.begin = each["position"] if place.begin is None else min(place.begin, each["position"])
        _changed(kept, event, each)
    yield from ()


def _revoked(kept: Kept, run: Run, event: Event) -> Iterator[Passing]:
    for each in _places(event):
        owner = _said(kept, run, event, each)
        owner.to_ms, owner.ended_by = event["at_ms"], event.get("trigger") or "revoked"
        owner.complete = owner.complete or (run.sound and each["in_flight"] == 0)
        _changed(kept, event, each)
    yield from ()


def _progress(kept: Kept, run: Run, event: Event) -> Iterator[Passing]:
    for each in _places(event):
        _said(kept, run, event, each)
        row = {name: each[name] for name in ("topic", "partition", "position", "end", "in_flight")}
        known = each["end"] is not None and each["position"] is not None
        row |= {"member": run.member, "run": event["run"], "at_ms": event["at_ms"]}
        yield "lag", row | {"lag": each["end"] - each["position"] if known else None}


def _reported(_: Kept, __: Run, event: Event) -> Iterator[Passing]:
    names = ("drained", "abandoned", "handed_back", "duplicates_suppressed")
    drained, abandoned, handed_back, suppressed = (_number(event.get(name) or 0) for name in names)
    row = {"drained": drained, "abandoned": abandoned, "handed_back": handed_back, "suppressed": suppressed}
    yield "report", row | {"at_ms": event["at_ms"]}


_KINDS = {
    "started": _started,
    "stopped": _stopped,
    "span": _span,
    "assigned": _assigned,
    "revoked": _revoked,
    "progress": _progress,
    "rebalance": _reported,
}


def _place(kept: Kept, topic: str, partition: str) -> JudgedPartition:
    where = (topic, partition)
    if where not in kept.places:
        kept.places[where] = JudgedPartition()
        kept.count("partitions")
    return kept.places[where]


def _owner(place: JudgedPartition, run: Run, event: Event, epoch: int | None) -> Owner:
    """The ownership that an event speaks of."""
    owner = place.owner(event["run"], epoch)
    if owner is None:  # its `assigned` has not come
        owner = Owner(run=event["run"], member=run.member, turn=0, epoch=epoch)
        owner.from_seq, owner.from_ms = event["seq"], event["at_ms"]
        place.owners.append(owner)
    return owner


def _said(kept: Kept, run: Run, event: Event, each: Mapping[str, Any]) -> Owner:
    place = _place(kept, each["topic"], each["partition"])
    owner = _owner(place, run, event, each["epoch"])
    end: int | None = each["end"]
    if end is not None:
        owner.end = end if owner.end is None else owner.end
        owner.last_end = end if owner.last_end is None else max(owner.last_end, end)
    if each["position"] is not None:
        place.says.append([event["run"], owner.from_seq, event["at_ms"], each["position"], run.sound])
    return owner


def _changed(kept: Kept, event: Event, each: Mapping[str, Any]) -> None:
    where = (each["topic"], each["partition"])
    said = (event["at_ms"], event["kind"], event.get("trigger"), event["run"], event["seq"])
    kept.changes.append(Change(*said, *where))


# -- what comes from outside is looked at before any of it is kept: what is kept once would end each further step ------


def _checked(span: Mapping[str, Any]) -> Told:
    first, next_, outcome, records = span["first"], span["next"], span["outcome"], span["records"]
    began, ended = span["began_ms"], span["ended_ms"]
    # In one go: it is asked of millions.
    whole = isinstance(records, int) and isinstance(began, int) and isinstance(ended, int)
    if not (whole and 0 <= records < _MOST and 0 <= began < LATEST_MS and 0 <= ended < LATEST_MS):
        raise ValueError(span)
    if first is None:
        _number_or_none(next_)
    elif not (isinstance(first, int) and isinstance(next_, int) and 0 <= first < next_ < _MOST) or (
        records > next_ - first
    ):
        raise ValueError(span)
    if outcome not in _OUTCOMES or not (records or outcome in _NO_RECORDS):
        raise ValueError(span)
    if began > ended or began < ended - _SPREAD_MS:
        began = min(max(began, ended - _SPREAD_MS), ended)
    return first, next_, outcome, records, began, ended


def _places(event: Event) -> list[dict[str, Any]]:
    _ = event.get("trigger") is None or _text(event["trigger"])
    found = []
    for each in event["partitions"]:
        numbers = {name: _number_or_none(each.get(name)) for name in ("epoch", "position", "end", "in_flight")}
        found.append(numbers | {"topic": _text(each["topic"]), "partition": _text(each["partition"])})
    return found


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or not -_MOST < value < _MOST:
        raise TypeError(value)
    return value


def _number_or_none(value: object) -> int | None:
    return None if value is None else _number(value)
