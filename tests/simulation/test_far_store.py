"""What goes to a store that is some milliseconds away, in how many round trips."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import Settings
from holdfast.plugin.engine.steps import StoreExchange
from holdfast.testing import ScriptedWorld
from tests.simulation.test_scripted import app_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from holdfast.dedup.claims import Claim, Verdict


def test_marks_go_with_what_handlers_end_and_not_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    trips: list[str] = []
    ask = StoreExchange.ask

    def noted(turn: StoreExchange, claims: Sequence[Claim]) -> Sequence[Verdict]:
        trips.append("marks alone" if not turn.finishing and not claims else "more")
        return ask(turn, claims)

    monkeypatch.setattr(StoreExchange, "ask", noted)
    with ScriptedWorld() as stage:
        for number in range(600):
            stage.produce("orders", {"id": number})
        settings = Settings(workers=4, poll_batch=20, mark_batch=20, ramp=None)
        stage.member(app_of(lambda _: stage.sleep(0.0001), settings))
        stage.settle()
        stage.assert_once()
    assert len(trips) > 20  # a batch is 20 records of 600
    assert trips.count("marks alone") <= 2
