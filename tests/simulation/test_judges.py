"""Judges that no rule of holdfast, broken in one place, shows to fail: what they forbid is done before their eyes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchOf, Settings
from holdfast.dedup.memory_state import StoredPosition
from holdfast.plugin.engine.loop import Engine
from holdfast.plugin.engine.partition.starving import Starving
from holdfast.plugin.engine.record.dispatch import Dispatch
from holdfast.plugin.engine.record.turns import Turns
from holdfast.testing.store import SimulatedStore
from tests.simulation.brokers.rocketmq_commits import QueueCommits
from tests.simulation.drawing.world import Fault, Fetches, Handling, Planned, Topic, World
from tests.simulation.playing.member import AppMember
from tests.simulation.playing.play import Play, play

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.plugin.engine.record.entry import Lane
    from holdfast.records import Partition
    from tests.simulation.playing.stage import Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Before anything happens."""
    made = Play(World(settings=Settings(), handlers=(Handling(name="h", topics=("t",)),), topics=(Topic(name="t"),)))
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


def played(world: World) -> str | None:
    """The rule that its judges saw broken."""
    found = play(world).found
    return found and found.rule


def of_one_record(takes_s: float = 0.0) -> World:
    return World(
        settings=Settings(),
        handlers=(Handling(name="h", topics=("t",)),),
        topics=(Topic(name="t"),),
        records=(Planned(topic="t", takes_s=takes_s),),
    )


def test_one_kind_of_handler_has_every_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(
        settings=Settings(workers=0),
        handlers=(
            Handling(name="plain", topics=("t",)),
            Handling(name="batch", topics=("u",), kind="batch", batch=BatchOf(records=1)),
        ),
        topics=(Topic(name="t"), Topic(name="u")),
        records=tuple(Planned(topic=topic, takes_s=0.7) for topic in ("t", "u") for _ in range(150)),
    )
    assert played(world) is None
    step = Dispatch.step

    def same_turn(self: Dispatch) -> None:
        self._turns = 0
        step(self)

    monkeypatch.setattr(Dispatch, "step", same_turn)
    assert played(world) == "STARVED"


def test_what_could_start_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    world = of_one_record()
    assert played(world) is None
    monkeypatch.setattr(Dispatch, "step", lambda _: None)
    assert played(world) == "STANDS"


def test_a_loop_waits_for_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    world = of_one_record(takes_s=3.0)
    assert played(world) is None
    turn = Engine.turn

    def waits(self: Engine) -> None:
        while self.parts.workers.outstanding:
            self.parts.runtime.sleep(0.01)
        turn(self)

    monkeypatch.setattr(Engine, "turn", waits)
    assert played(world) == "AWAY"


def test_a_member_that_is_asked_to_leave_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    world = of_one_record()
    assert played(world) is None
    monkeypatch.setattr(AppMember, "stop", lambda _: None)
    assert played(world) == "NO END"


def test_a_hand_over_does_not_wait_for_the_answer_to_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(
        settings=Settings(ramp=None, commit_interval_s=0.4),
        broker="queues",
        handlers=(Handling(name="h", topics=("t",)),),
        topics=(Topic(name="t", partitions=2),),
        records=tuple(Planned(at_s=number / 100, topic="t", partition=number % 2) for number in range(200)),
        faults=(Fault(at_s=0.5, kind="late", for_s=3.0, amount=1.5), Fault(at_s=1.0, kind="join")),
    )
    assert played(world) is None
    monkeypatch.setattr(QueueCommits, "wait", lambda *_: None)
    assert played(world) == "REWOUND"


@pytest.mark.parametrize("broker", ["kafka", "queues"])
def test_a_partition_waits_for_another_ones_backlog(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    backlog = [Planned(topic="t", takes_s=0.05)] * 200
    fresh = [Planned(at_s=number / 5, topic="t", partition=1, takes_s=0.05) for number in range(20)]
    world = World(
        settings=Settings(workers=1, ordering="none", ramp=None),
        broker=broker,
        handlers=(Handling(name="h", topics=("t",)),),
        topics=(Topic(name="t", partitions=2),),
        records=(*backlog, *fresh),
        fetches=Fetches() if broker == "kafka" else None,
    )
    assert played(world) is None
    append = Turns.append

    def by_arrival(self: Turns, handler: Any, partition: Partition, lane: Lane) -> None:
        append(self, handler, partition._replace(number=0), lane)

    monkeypatch.setattr(Turns, "append", by_arrival)
    assert played(world) == "TURNS"


@pytest.mark.parametrize("ground", [{"protocol": "cooperative"}, {"protocol": "consumer"}, {"broker": "queues"}])
def test_a_partition_that_stays_is_not_read_while_another_is_drained(
    ground: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = [Planned(at_s=0.9, topic="t", partition=number, takes_s=3.0) for number in (0, 1)]
    quick = [Planned(at_s=number / 50, topic="t", partition=number % 2) for number in range(200)]
    world = World(
        settings=Settings(ramp=None),
        **ground,
        handlers=(Handling(name="h", topics=("t",)),),
        topics=(Topic(name="t", partitions=2),),
        records=tuple(sorted([*slow, *quick], key=lambda each: each.at_s)),
        faults=(Fault(at_s=1.0, kind="join"),),
    )
    assert played(world) is None
    monkeypatch.setattr(Starving, "too_long", False)
    assert played(world) == "UNREAD"
