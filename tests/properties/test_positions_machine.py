"""Processes that own, mark, reset, let go and lose answers, at the specification and at SqlPositions on a database:
every reply stays the same, step by step."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from holdfast.dedup.claims import Drop, LetGo, Mark
from holdfast.errors import StoreUnavailable
from tests.harness.servers.postgres import postgres
from tests.harness.sql_stores import Databases, Model, settled

if TYPE_CHECKING:
    from tests.harness.servers.postgres import PostgresServer

__all__ = ["postgres"]

#: A file there costs no disk's time; a crash of the machine is not what is tested.
_MEMORY = Path("/dev/shm")  # noqa: S108 - each run has a folder of its own
#: What the process itself has is by far the most common; the others are of others.
OWN = -1
actors = st.integers(0, 2)
partitions = st.sampled_from(["p", "p", "p", "q"])
epochs = st.sampled_from([OWN, OWN, OWN, OWN, 1, 2, 3])
offset_sets = st.lists(st.sampled_from([0, 1, 2, 7, 255, 256, 257, 2**40]), unique=True, max_size=5).map(sorted)
watermarks = st.sampled_from([0, 0, 0, 1, 8, 256, 258, 2**40])
marks = st.lists(st.tuples(partitions, epochs, watermarks, offset_sets), min_size=1, max_size=3)
#: Whether the answer is lost, before or after what was asked is done: it is asked again.
losses = st.sampled_from(["", "", "", "before", "after"])


class PositionsMachine(RuleBasedStateMachine):
    url: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-positions-", dir=_MEMORY if _MEMORY.is_dir() else None))
        self.databases = Databases(self.url or f"sqlite:///{self.folder / 'positions.db'}")
        self.databases.forget()
        self.model = Model()
        self.pairs = [(self.model.begin(), *self.databases.losing()) for _ in range(3)]
        self.epochs: dict[tuple[int, str], int] = {}

    def teardown(self) -> None:
        self.databases.close()
        shutil.rmtree(self.folder)

    def ask(self, actor: int, method: str, args: list[Any], lose: str) -> Any:
        model, session, unheard = self.pairs[actor]
        expected = getattr(model, method)(args)
        unheard.lose = lose
        try:
            found = getattr(session, method)(args)
        except StoreUnavailable:
            if method in ("acquire", "drop") and lose == "after":
                expected = getattr(model, method)(args)  # the first one counts as well: two epochs, two resets
            found = getattr(session, method)(args)
        unheard.lose = ""
        if method == "acquire":
            expected, found = ([settled(each) for each in reply] for reply in (expected, found))
        assert found == expected, f"{method}({args}): {found}, and the specification says {expected}"
        return found

    def epoch(self, actor: int, name: str, other: int) -> int:
        return self.epochs.get((actor, name), 1) if other == OWN else other

    @rule(actor=actors, names=st.lists(partitions, min_size=1, max_size=2, unique=True), lose=losses)
    def acquire(self, actor: int, names: list[str], lose: str) -> None:
        for name, reply in zip(names, self.ask(actor, "acquire", names, lose), strict=True):
            self.epochs[actor, name] = reply.epoch

    @rule(actor=actors, items=marks, lose=losses)
    def mark(self, actor: int, items: list[tuple[str, int, int, list[int]]], lose: str) -> None:
        self.ask(actor, "mark", [Mark(p, self.epoch(actor, p, e), w, offsets) for p, e, w, offsets in items], lose)

    @rule(actor=actors, name=partitions, epoch=epochs, offset=st.sampled_from([0, 1, 8, 256, 2**40]), lose=losses)
    def drop(self, actor: int, name: str, epoch: int, offset: int, lose: str) -> None:
        self.ask(actor, "drop", [Drop(name, self.epoch(actor, name, epoch), offset)], lose)

    @rule(actor=actors, name=partitions, lose=losses)
    def let_go(self, actor: int, name: str, lose: str) -> None:
        self.ask(actor, "let_go", [LetGo(name, self.epoch(actor, name, OWN), ())], lose)


def play(url: str, examples: int) -> None:
    machine = type("Machine", (PositionsMachine,), {"url": url})
    calm = settings(max_examples=examples, stateful_step_count=25, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(machine, settings=calm)


def test_sqlite_replies_as_the_specification_does() -> None:
    play("", 20)


@pytest.mark.full
def test_postgresql_replies_as_the_specification_does(postgres: PostgresServer) -> None:
    play(postgres.database(), 60)
