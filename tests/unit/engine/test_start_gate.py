"""The start gate: who fences a partition knows of each record whether it has started."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import MemoryClaims
from holdfast.plugin.engine.partition.ledger import Ledger
from holdfast.plugin.engine.partition.ownership import Ownership, Phase
from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.dedup.claims import ClaimSession


class Entry:
    started, count = 0, 1


@pytest.fixture
def session() -> Iterator[ClaimSession]:
    claims = MemoryClaims()
    yield claims.begin(1000.0)
    claims.close()


def owned(session: ClaimSession) -> Ownership:
    owner = Ownership(Partition("orders", 0), session)
    owner.move(Phase.ACQUIRED)
    owner.own(Ledger(0))
    return owner


GATES: list[Callable[[Ownership, Any], bool]] = [Ownership.enter, Ownership._enter_locked]


@pytest.mark.parametrize("enter", GATES)
def test_a_record_starts_while_its_partition_is_owned_and_its_session_lives(
    session: ClaimSession, enter: Callable[[Ownership, Any], bool]
) -> None:
    owner, entry = owned(session), Entry()
    assert [enter(owner, entry), entry.started] == [True, 1]
    owner.move(Phase.FENCED)
    assert [enter(owner, entry), entry.started] == [False, 1]
    gone = owned(session)
    gone._live = lambda: False
    assert [enter(gone, entry), entry.started] == [False, 1]


def test_who_fences_between_look_and_start_sees_the_start(session: ClaimSession) -> None:
    owner, entry = owned(session), Entry()
    seen: list[int] = []

    def fenced_meanwhile() -> bool:
        owner.move(Phase.FENCED)
        seen.append(entry.started)
        return True

    owner._live = fenced_meanwhile
    assert owner.enter(entry)
    assert seen == [1]


def test_whoever_comes_first_no_record_starts_that_the_fence_has_not_seen(session: ClaimSession) -> None:
    """Threads that change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        outcomes = {_race(session, patience=number % 100 * 20) for number in range(600)}
    finally:
        sys.setswitchinterval(before)
    assert outcomes <= {(True, True), (False, False), (False, True)}  # (started, seen by the fence)


def _race(session: ClaimSession, *, patience: int) -> tuple[bool, bool]:
    """Args: patience: how many steps the fence waits for the worker."""
    owner, entry, together = owned(session), Entry(), threading.Barrier(2)
    started: list[bool] = []

    def work() -> None:
        together.wait()
        started.append(owner.enter(entry))

    worker = threading.Thread(target=work)
    worker.start()
    together.wait()
    for _ in range(patience):
        pass
    owner.move(Phase.FENCED)
    seen = entry.started > 0
    worker.join()
    assert entry.started == started[0]
    return started[0], seen
