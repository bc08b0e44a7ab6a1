"""The faults: what is done to a group, and when. A seed moves the moments and chooses the victim, the same for each
consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lab.consumers import Store
    from tests.lab.stage import Stage

#: Longer than a session and its next heartbeat.
FROZEN_S = 9.0
#: Longer than the poll interval.
SLOW_S = 9.0
AWAY_S = 5.0
#: What comes at once right before something is done, so that everybody has work in hand then.
BURST = 300


class Fault(NamedTuple):
    """`play` returns when what is to be done is done; then the stream goes on until `until`."""

    name: str
    told: str
    play: Callable[[Stage], None]
    members: int = 3
    #: Whom it is for; None = everybody.
    needs_store: bool = False

    def fits(self, store: Store | None) -> bool:
        """Whether there is anything to be done to a consumer with that store."""
        return store is not None or not self.needs_store


def _join(stage: Stage) -> None:
    for name, at in (("c", 3), ("d", 8)):
        stage.burst(at)
        stage.mark(f"{name} joins", "harm")
        stage.group.start(name)
    stage.stream_until(13)


def _leave(stage: Stage) -> None:
    first, second, _ = stage.names
    for name, at in ((first, 3), (second, 7)):
        stage.burst(at)
        stage.leave(name, "harm")
    stage.stream_until(12)


def _rolling(stage: Stage) -> None:
    for name, at in zip(stage.names, (3.0, 7.0, 11.0), strict=True):
        stage.burst(at)
        stage.leave(name, "harm")
        stage.group.await_end(name)
        stage.group.start(name)
    stage.stream_until(16)


def _kill(stage: Stage) -> None:
    stage.burst(3)
    stage.mark(f"kill -9 {stage.names[0]}", "harm")
    stage.group.kill(stage.names[0])
    stage.stream_until(14)


def _freeze(stage: Stage) -> None:
    stage.burst(3)
    stage.mark(f"SIGSTOP {stage.names[0]}", "harm")
    stage.group.freeze(stage.names[0])
    stage.wait_until(3 + FROZEN_S)
    stage.mark("SIGCONT")
    stage.group.go_on(stage.names[0])
    stage.stream_until(17)


def _slow(stage: Stage) -> None:
    stage.wait_until(3)
    stage.mark(f"a record of {SLOW_S:.0f} s", "harm")
    stage.slow(SLOW_S)
    stage.stream_until(17)


def _broker(stage: Stage) -> None:
    stage.burst(3)
    stage.mark("broker stopped", "harm")
    stage.restart_broker()
    stage.mark("broker is back", "heal")
    stage.stream_for(9)


def _store(stage: Stage) -> None:
    stage.burst(3)
    stage.mark("store killed", "harm")
    stage.store_away(AWAY_S)
    stage.mark("store is back", "heal")
    stage.stream_until(15)


FAULTS = (
    Fault("join", "two members become three, then four", _join, members=2),
    Fault("leave", "three members become two, then one (SIGTERM)", _leave),
    Fault("rolling restart", "each of three members leaves (SIGTERM) and is started again", _rolling),
    Fault("kill -9", "one of three members is killed", _kill),
    Fault("freeze", f"one of three members is stopped for {FROZEN_S:.0f} s, and goes on (SIGSTOP, SIGCONT)", _freeze),
    Fault("slow handler", f"one record takes {SLOW_S:.0f} s; the poll interval is 6 s", _slow),
    Fault("broker restart", "the broker is stopped in good order and started again", _broker),
    Fault("store away", f"the store is killed, and started again {AWAY_S:.0f} s later", _store, needs_store=True),
)
