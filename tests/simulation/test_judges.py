"""Judges that no rule of holdfast, broken in one place, shows to fail: what they forbid is done before their eyes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Settings
from holdfast.dedup.memory_state import StoredPosition
from holdfast.testing.play import Stage
from holdfast.testing.store import SimulatedStore
from holdfast.testing.world import Handling, Topic, World

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Before anything happens."""
    made = Stage(World(settings=Settings(), handlers=(Handling(name="h", topics=("t",)),), topics=(Topic(name="t"),)))
    yield made
    made.scheduler.end()


def at_store(stage: Stage, position: StoredPosition) -> Any:
    """Who looks on at its store, where that position is."""
    assert isinstance(stage.store, SimulatedStore)
    stage.store.state.positions["p"] = position
    return stage.store.witness


def rule(stage: Stage) -> str | None:
    return stage.judges.found and stage.judges.found.rule


def test_who_does_not_own_a_partition_marks_there(stage: Stage) -> None:
    position = StoredPosition(owner="a", epoch=1)
    witness = at_store(stage, position)

    def mark() -> None:
        position.watermark += 1

    witness("a", 0, mark)
    assert rule(stage) is None
    witness("b", 0, mark)
    assert rule(stage) == "ZOMBIE"


def test_what_a_session_has_not_acknowledged_is_let_go_by_another(stage: Stage) -> None:
    position = StoredPosition(owner="b", epoch=2, running={3: ("a", 1), 4: ("a", 1), 5: ("a", 1)})
    witness = at_store(stage, position)
    for session, offset in (("a", 3), ("b", 4)):  # by itself, and by the owner who has waited for it
        witness(session, 0, lambda gone=offset: position.running.pop(gone))
    assert rule(stage) is None
    witness("c", 0, lambda: position.running.pop(5))
    assert rule(stage) == "HANDS"
