"""What has ended is told to the store together with what ends shortly after it, and never later than it may be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import Settings
from holdfast.plugin.engine.flow.intake import Intake
from holdfast.plugin.engine.record.settling import Unacked
from holdfast.plugin.engine.steps import Steps
from holdfast.plugin.handlers import Kind
from tests.harness.clocks import HandClock


class Scene:
    """Steps of which one exchange after the other is asked for; what they said, by when."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.unacked, self.intake = Unacked(100, [Kind.PLAIN]), Intake(Settings(max_in_flight=100), self.clock)
        self.settling, self.claiming = SimpleNamespace(waiting=0), SimpleNamespace(wanted=False)
        self.said: list[float] = []
        more = dict.fromkeys(("routes", "settings", "group", "lanes", "workers", "outage", "sessions"), None)
        parts: Any = SimpleNamespace(
            runtime=self.clock,
            unacked=self.unacked,
            intake=self.intake,
            settling=self.settling,
            claiming=self.claiming,
            **more | {"settings": Settings()},
        )
        self.steps = Steps(parts, SimpleNamespace())
        self.steps._gather = lambda: None  # type: ignore[method-assign]
        self.steps.claim = lambda: None  # type: ignore[method-assign]
        self.steps.settle = self._settled  # type: ignore[method-assign]

    def _settled(self) -> None:
        if self.settling.waiting:
            self.said.append(round(self.clock.now(), 4))
        self.settling.waiting = 0

    def at(self, now: float, *, ended: int = 1) -> None:
        """A turn at that time, in which so many records have ended."""
        self.clock.sleep(now - self.clock.now())
        self.settling.waiting += ended
        self.steps.exchange()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_record_that_comes_alone_is_told_at_once(scene: Scene) -> None:
    for now in (1.0, 1.1, 1.2):
        scene.at(now)
    assert scene.said == [1.0, 1.1, 1.2]


def test_records_that_end_one_by_one_share_round_trips(scene: Scene) -> None:
    for number in range(20):
        scene.at(1.0 + number / 1000)
    assert scene.said == [1.0, 1.005, 1.01, 1.015]


def test_a_turn_waits_no_longer_than_the_first_that_waits_may_be_late(scene: Scene) -> None:
    scene.at(1.0)
    assert scene.steps.left_s == pytest.approx(0.005)
    scene.at(1.002)
    assert scene.steps.left_s == pytest.approx(0.005)
    scene.at(1.004)
    assert scene.steps.left_s == pytest.approx(0.003)
    scene.at(1.007, ended=0)
    assert scene.said == [1.0, 1.007]


def test_what_a_hand_over_has_told_keeps_no_turn_from_waiting(scene: Scene) -> None:
    scene.at(1.0)
    scene.at(1.001)
    scene.settling.waiting = 0
    scene.at(2.0, ended=0)
    assert scene.steps.left_s == pytest.approx(0.005)


def test_a_turn_that_comes_too_late_waits_no_more(scene: Scene) -> None:
    scene.at(1.0)
    scene.at(1.001)
    scene.clock.sleep(1.0)
    assert scene.steps.left_s == 0


@pytest.mark.parametrize("what", ["a claim", "no room for handlers", "no room in the process"])
def test_nothing_that_waits_for_the_store_waits_for_marks(scene: Scene, what: str) -> None:
    scene.at(1.0)
    scene.claiming.wanted = what == "a claim"
    scene.unacked._of[Kind.PLAIN] = 51 if what == "no room for handlers" else 50
    scene.intake.records = 51 if what == "no room in the process" else 50
    scene.at(1.001)
    assert scene.said == [1.0, 1.001]


def test_room_for_handlers_is_of_each_kind() -> None:
    kinds = list(Kind)[:2]
    unacked = Unacked(100, kinds)
    unacked._of[kinds[0]] = 25
    assert unacked.roomy
    unacked._of[kinds[0]] = 26
    assert not unacked.roomy
