"""Every option that a user has is drawn by some seed: one that is added later, and is not, fails here."""

from __future__ import annotations

import inspect
from collections import defaultdict
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

import pytest

from holdfast import BatchOf, DeadLetterLimit, Holdfast, Ramp, Retry, Settings
from tests.simulation.drawing.draw import draw
from tests.simulation.playing.member import registered

if TYPE_CHECKING:
    from tests.simulation.drawing.world import World

_SEEDS = 300
#: Options that no seed draws, and why. Empty is how it should be.
_NOT_DRAWN: dict[str, str] = {
    "handler.value": "it decodes right before the call, in the same step: tests/unit/engine/test_typed_handlers.py",
}


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    return [draw(seed) for seed in range(_SEEDS)]


@pytest.fixture(scope="module")
def drawn(worlds: list[World]) -> dict[str, set[str]]:
    """By option: the values that seeds give it."""
    found: defaultdict[str, set[str]] = defaultdict(set)

    def note(of: str, name: str, value: object) -> None:
        found[f"{of}.{name}"].add(repr(value))
        if is_dataclass(value) and not isinstance(value, type):
            for field in fields(value):
                note(type(value).__name__, field.name, getattr(value, field.name))

    for world in worlds:
        note("world", "settings", world.settings)
        for handling in world.handlers:
            for name, value in registered(handling, "the store").items():
                note("handler", name, value)
    return dict(found)


def _options() -> list[str]:
    of_handlers = [name for name in inspect.signature(Holdfast.handler).parameters if name != "self"]
    return [
        *(f"handler.{name}" for name in of_handlers),
        *(
            f"{kind.__name__}.{each.name}"
            for kind in (Settings, Retry, Ramp, DeadLetterLimit, BatchOf)
            for each in fields(kind)
        ),
    ]


@pytest.mark.parametrize("option", _options())
def test_it_is_drawn(option: str, drawn: dict[str, set[str]]) -> None:
    assert (len(drawn.get(option, ())) > 1) != (option in _NOT_DRAWN), drawn.get(option)


def test_some_worlds_have_middlewares(worlds: list[World]) -> None:
    assert {world.around for world in worlds} == {False, True}


def test_some_batch_handlers_name_what_has_failed_and_no_others_do(worlds: list[World]) -> None:
    handlers = [each for world in worlds for each in world.handlers]
    assert {(each.by_record, each.batch is not None) for each in handlers} == {(0, 0), (0, 1), (1, 1)}
