"""The result in words and figures."""

from __future__ import annotations

import textwrap
from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from examples.lab.group import Kind
    from examples.lab.referee import Verdict

_WIDTH = 92

_PHASES = {
    "start": "while the first three start",
    "join": "after a member joined",
    "leave": "after a member left (SIGTERM)",
    "kill": "after a member was killed (SIGKILL)",
    "back": "after two members came back",
    "stall": "after a member was frozen and went on",
    "slow": "while an order takes 9 s",
    "slow-kill": "after the member that has it was killed",
    "end": "while all leave (SIGTERM)",
}

#: The events that cost a plain loop nothing, on this group protocol.
_EASY = {"start", "join", "leave", "back"}


def table(verdicts: Mapping[Kind, Verdict]) -> str:
    """One column for each consumer."""
    all_of_them = list(verdicts.values())
    rows = [
        ("", [kind.title for kind in verdicts]),
        ("orders handled", [_of(one.handled, one.produced) for one in all_of_them]),
        ("handled again (repeated)", [f"{one.repeated:,}" for one in all_of_them]),
    ]
    for place, event in enumerate(all_of_them[0].by_event):
        counts = [one.by_event[place].repeated for one in all_of_them]
        if event.name not in {"start", "back", "slow", "end"} or any(counts):  # nothing happens there, normally
            rows.append((f"  {_PHASES[event.name]}", [f"{count:,}" for count in counts]))
    rows += [
        ("lost: never done, and skipped", [f"{one.lost:,}" for one in all_of_them]),
        ("still waiting at the end", [f"{one.left:,}" for one in all_of_them]),
        ("in two processes at the same time", [f"{one.at_the_same_time:,}" for one in all_of_them]),
        ("longest pause of a partition", [f"{one.longest_pause_s:.1f} s" for one in all_of_them]),
        ("longest time to recover the lag *", [_seconds(one.recover_s) for one in all_of_them]),
    ]
    return f"{_aligned(rows)}\n* from an event until at most half a second's worth of orders waits; the start apart"


def _seconds(long: float) -> str:
    return f"{long:.1f} s" if isfinite(long) else "never"


def _of(handled: int, produced: int) -> str:
    return f"{handled:,} of {produced:,}"


def _aligned(rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    left = max(len(name) for name, _ in rows)
    widths = [max(len(cells[column]) for _, cells in rows) for column in range(len(rows[0][1]))]
    lines = [
        f"{name:<{left}}" + "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        for name, cells in rows
    ]
    rule = "-" * len(lines[0])
    return "\n".join([rule, lines[0], rule, *lines[1:], rule])


def explanation(verdicts: Mapping[Kind, Verdict]) -> str:
    """What was seen, in plain words; only what these figures show."""
    by_name = {kind.name: verdict for kind, verdict in verdicts.items()}
    said = []
    plain = [by_name[name] for name in ("default", "careful") if name in by_name]
    if plain:
        said.append(_about_plain(plain))
    if (auto := by_name.get("default")) is not None:
        said.append(_about_automatic(auto))
    if (manual := by_name.get("careful")) is not None:
        said.append(_about_manual(manual))
    ours = by_name.get("holdfast")
    if ours is not None:
        said.append(_about_holdfast(ours))
    return "\n\n".join(textwrap.fill(text, _WIDTH) for text in said if text)


def _about_plain(plain: Sequence[Verdict]) -> str:
    counts = " and ".join(f"{one.repeated:,}" for one in plain)
    graceful = sum(event.repeated for one in plain for event in one.by_event if event.name in _EASY)
    text = (
        f"The plain loops handled {counts} orders again: after a crash or a freeze, the member that takes a partition "
        "over begins at the last committed offset, and everything handled since then is done again. How many that are "
        "depends on when it happens between two commits; committing more often makes it less, not nothing."
    )
    if graceful == 0:
        text += " Joining and leaving repeated nothing there either: on this group protocol that is the easy part."
    return text


def _about_automatic(auto: Verdict) -> str:
    if not auto.lost:
        return "The automatic commits lost nothing in this run: none fell into the time of the slow order."
    return (
        f"The automatic commits lost {_orders(auto.lost)}: an offset was committed while its handler was still at "
        "work, and then the process died. No member gets this order again."
    )


def _about_manual(manual: Verdict) -> str:
    if not manual.left:
        return ""
    return (
        "The manual commits never get past the slow order: its handler takes longer than max.poll.interval.ms. So the "
        "group takes the partition away and refuses the commit. The next member begins the order anew, and fails in "
        f"the same way. {manual.left:,} orders waited at the end. The usual cure is a larger interval; then a handler "
        "that hangs is noticed that much later."
    )


def _about_holdfast(ours: Verdict) -> str:
    if ours.broken:
        return (
            f"holdfast lost {ours.lost} and repeated {ours.repeated_gracefully} where every member could finish: "
            "that breaks its promise. Please report it, with the folder of this run."
        )
    if ours.repeated == 0:
        return "holdfast repeated nothing and lost nothing in this run." + _about_pauses(ours)
    text = (
        "holdfast lost nothing, and repeated nothing when members joined or left. It handled "
        f"{_orders(ours.repeated)} again"
    )
    other = ours.repeated - ours.from_hands
    if other == 0:
        text += ", " + ("which was" if ours.repeated == 1 else "all of which were")
    else:
        text += f"; {ours.from_hands:,} of these {'was' if ours.from_hands == 1 else 'were'}"
    text += (
        " in the hands of the process that was killed or frozen, at that very moment. Nobody can know how far such a "
        "handler came, so these run again (a sink that checks record.fence can refuse even those)."
    )
    if other:
        text += (
            f" {_orders(other).capitalize()} more than that: unexpected, unless a member's log in this run's folder "
            "says 'session lost', because this machine held it up for longer than its lease of 2 s. Else please report "
            "it, with that folder."
        )
    if ours.at_the_same_time:
        text += (
            " At the same time: the frozen process ended its order when it went on, after another had taken it over."
        )
    return text + _about_pauses(ours)


def _about_pauses(ours: Verdict) -> str:
    return (
        f" The longest pause, {ours.longest_pause_s:.1f} s, is the time until the broker gives a silent member up "
        "(here after 2 s, and it looks once a second; 45 s at most brokers): the price of a crash for everybody."
    )


def _orders(count: int) -> str:
    return "1 order" if count == 1 else f"{count:,} orders"
