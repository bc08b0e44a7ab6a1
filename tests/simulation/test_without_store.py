"""What a group keeps that has no store: nothing is lost, and while nobody dies nothing runs twice. On real brokers
`tests/stories` has the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, Settings
from holdfast.testing import ScriptedWorld

if TYPE_CHECKING:
    from holdfast.testing.scripted.member import MakeApp, Member


def app_of(stage: ScriptedWorld) -> MakeApp:
    def make_app(source: Any, _: Any) -> Holdfast:
        app = Holdfast(source, claims=None, settings=Settings(workers=4))
        app.handler("orders", name="handle")(lambda _: stage.sleep(0.5))
        return app

    return make_app


def send(stage: ScriptedWorld, first: int) -> None:
    for number in range(first, first + 12):
        stage.produce("orders", {"id": number}, key=f"k{number % 5}")


def start_again(stage: ScriptedWorld, member: Member) -> None:
    """As a deployment does it, in the middle of its work."""
    stage.run(until=lambda: member.handling)
    member.stop()
    stage.run(until=lambda: not member.alive)
    member.restart()


@pytest.fixture(params=["consumer", "cooperative", "eager"])
def protocol(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_a_crash_loses_nothing(protocol: Any) -> None:
    with ScriptedWorld(protocol=protocol) as stage:
        a, _ = (stage.member(app_of(stage)) for _ in range(2))
        send(stage, 0)
        stage.run(until=lambda: a.handling)
        a.crash()
        send(stage, 12)
        a.restart()
        stage.settle()
        stage.assert_nothing_lost()
        stage.assert_committed()


def test_a_rolling_restart_loses_nothing_and_repeats_nothing(protocol: Any) -> None:
    with ScriptedWorld(protocol=protocol) as stage:
        members = [stage.member(app_of(stage)) for _ in range(2)]
        for first, member in enumerate(members):
            send(stage, 12 * first)
            start_again(stage, member)
        stage.settle()
        stage.assert_once()
        stage.assert_nothing_lost()
        stage.assert_order()
        stage.assert_committed()
