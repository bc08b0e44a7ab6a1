"""Tables of settings in docs/reference have all of them, with their defaults."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from holdfast import BatchOf, DeadLetterLimit, Ramp, RedisClaims, Retry, Settings
from holdfast.adapters.rocketmq import PushSource
from holdfast.adapters.rocketmq.settings import PullSettings

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
#: Those of `from_url` that are no settings of a user's: where it is, and what a simulated world gives.
_NOT_THERE = {"url", "runtime"}
#: What both of RocketMQ's sources have to be told.
_PLACE = ("namesrv", "group")


def table(page: str, head: str) -> dict[str, str]:
    """Of the table with that head: the first cell's names, and the second cell."""
    lines = (REFERENCE / page).read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(head)) + 2
    found: dict[str, str] = {}
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        names, default = (cell.strip() for cell in line.split("|")[1:3])
        defaults = default.split(", ") if "`, `" in names else [default]
        found.update(zip(re.findall(r"`(\w+)`", names), defaults, strict=True))
    return found


def said(value: object) -> str:
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
    return "none" if value in ((), {}) else f"`{value!r}`" if isinstance(value, bool) else str(value)


def defaults_of(made: object) -> dict[str, str]:
    return {each.name: said(getattr(made, each.name)) for each in dataclasses.fields(made)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("head", "made"), [("| `Retry(", Retry()), ("| `BatchOf(", BatchOf()), ("| `DeadLetterLimit(", DeadLetterLimit())]
)
def test_what_a_handler_takes(head: str, made: object) -> None:
    assert table("settings.md", head) == defaults_of(made) | ({"retry_on": "`Exception`"} if "Retry" in head else {})


def test_the_ramp_is_in_the_how_to() -> None:
    page = (REFERENCE.parent / "how-to" / "ramp.md").read_text(encoding="utf-8")
    ramp = Ramp()
    assert f"Ramp(headroom={ramp.headroom:g}, over_s={ramp.over_s:g}, floor_per_s={ramp.floor_per_s:g})" in page


def test_settings_of_an_app() -> None:
    assert set(table("settings.md", "| `Settings(")) == {each.name for each in dataclasses.fields(Settings)}


def test_settings_of_the_store() -> None:
    there = set(inspect.signature(RedisClaims.from_url).parameters) - _NOT_THERE
    assert set(table("settings.md", "| `RedisClaims.from_url(")) == there


def test_settings_of_rocketmqs_sources() -> None:
    pull = defaults_of(PullSettings(namesrv="a:1", group="g"))
    assert table("rocketmq.md", "| `RocketMQSource(") == {name: pull[name] for name in pull if name not in _PLACE}
    push = {
        name: said(each.default)
        for name, each in inspect.signature(PushSource.__init__).parameters.items()
        if name not in (*_PLACE, "self")
    }
    assert table("rocketmq.md", "| `PushSource(") == push
