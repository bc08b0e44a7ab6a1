"""Several processes in one table, a line an app; who gives no answer has one, too."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.adapters.cli.output import count, shown, span
from holdfast.adapters.cli.status_request import NoAnswer
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.cli.output import Output, Tone
    from holdfast.adapters.cli.status_request import App, Request

_NAMES = ("ADDRESS", "GROUP", "MEMBER", "STATE", "PARTITIONS", "LAG", "IN FLIGHT", "OLDEST")


@dataclass(slots=True)
class Answer:
    """The outcome of one question."""

    where: str
    apps: list[App] = field(default_factory=list)
    #: Why there is none.
    error: HoldfastError | None = None


def ask_all(requests: Sequence[Request]) -> list[Answer]:
    """All at the same time: one that gives no answer takes no time of the others. Raises SettingError: a token is
    wrong."""
    answers = [Answer(each.where) for each in requests]

    def ask(request: Request, answer: Answer) -> None:
        try:
            answer.apps = request.ask()
        except HoldfastError as error:
            answer.error = error

    asking = [threading.Thread(target=ask, args=each, daemon=True) for each in zip(requests, answers, strict=True)]
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    for answer in answers:
        if answer.error is not None and not isinstance(answer.error, NoAnswer):
            raise answer.error
    return answers


def tell(answers: Sequence[Answer], output: Output, height: int | None) -> int:
    """The table, its sum, and the reasons of who is not ready. Returns an exit code: 3: not all answer; 1: not all are
    live and ready.

    Args:
        answers: in the order of the addresses.
        output: where.
        height: of a terminal that is drawn anew.
    """
    if height is not None:
        output.draw_anew()
    for answer in answers:
        for app in answer.apps:
            output.json({"type": "app", "address": answer.where, **app})
        if answer.error is not None:
            output.json({"type": "no_answer", "address": answer.where, "error": str(answer.error)})
    lines = [line for answer in answers for line in _lines(answer)]
    summary = _summary(answers)
    notes = [
        f"note: {answer.where}: {shown(reason, 200)}"
        for answer in answers
        for app in answer.apps
        for reason in app["reasons"]
    ]
    room = None
    if height is not None:  # what is worst first, since the rest has no room
        lines.sort(key=lambda line: line.rank)
        room = output.room(height, summary, *notes)
    told = output.table(_NAMES, [line.row for line in lines], room, [line.tone for line in lines])
    if told < len(lines):
        output.say(f"and {count(len(lines) - told, 'line')} more")
    output.say(summary)
    for each in notes:
        output.say(each, tone="warning")
    if any(answer.error for answer in answers):
        return 3
    return 0 if all(app["live"] and app["ready"] for answer in answers for app in answer.apps) else 1


@dataclass(frozen=True, slots=True)
class _Line:
    row: list[object]
    tone: Tone | None
    rank: tuple[int, int] = (0, 0)


def _lines(answer: Answer) -> list[_Line]:
    if isinstance(answer.error, NoAnswer):
        nothing: list[object] = [None] * 4
        return [_Line([answer.where, "-", "-", f"no answer ({shown(answer.error.why)})", *nothing], "bad")]
    if not answer.apps:
        return [_Line([answer.where, "-", "-", "no app", *[None] * 4], "warning", (1, 0))]
    return [_line(answer.where, app) for app in answer.apps]


def _line(where: str, app: App) -> _Line:
    state = [app["state"]]
    state += [] if app["live"] else ["NOT LIVE"]
    state += [] if app["ready"] else ["not ready"]
    state += [] if app["store"]["up"] else ["STORE DOWN"]
    known, unknown = _lag([app])
    lag: object = known
    if unknown:
        lag = "unknown" if unknown == len(app["partitions"]) else f"{known:,}, unknown in {unknown}"
    ages = [each["lowest"]["for_s"] for each in app["partitions"] if each["lowest"]]
    tone = tone_of(app)
    return _Line(
        [
            where,
            shown(app["group"]),
            shown(app.get("member") or "-"),
            ", ".join(state),
            len(app["partitions"]),
            lag,
            app["load"]["in_flight"],
            span(max(ages)) if ages else "-",
        ],
        tone,
        (1 if tone else 2, -known),
    )


def tone_of(app: App) -> Tone | None:
    """None: nothing is wrong with it."""
    if not app["live"] or not app["store"]["up"]:
        return "bad"
    return None if app["ready"] else "warning"


def _summary(answers: Sequence[Answer]) -> str:
    apps = [app for answer in answers for app in answer.apps]
    away = sum(answer.error is not None for answer in answers)
    parts = [f"{len(answers) - away} of {len(answers)} addresses answer"]
    known, unknown = _lag(apps)
    partitions = sum(len(app["partitions"]) for app in apps)
    if partitions:
        parts.append(f"lag: {known:,} in {count(partitions - unknown, 'partition')}")
    if unknown:
        parts.append(f"not known in {unknown}")
    return ", ".join(parts)


def _lag(apps: Sequence[App]) -> tuple[int, int]:
    """Of the partitions of which it is known; and the number of the others."""
    lags = [each["lag"] for app in apps for each in app["partitions"]]
    known = [each for each in lags if each is not None]
    return sum(known), len(lags) - len(known)
