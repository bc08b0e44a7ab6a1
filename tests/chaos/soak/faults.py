"""The faults of a soak: each harms, heals, and returns; what follows is for the stage to wait for."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.harness.group.config import EVERYWHERE, KAFKA
from tests.harness.wire import WAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.chaos.soak.stage import Stage
    from tests.harness.group.config import Protocol
    from tests.harness.wire import Way

#: Of the members and of the store's leases. Shorter: nobody may notice. Longer: all have noticed.
SESSION_S: Final = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`play` returns when what it did is healed."""

    name: str
    play: Callable[[Stage], None]
    protocols: Sequence[Protocol] = EVERYWHERE


FAULTS: dict[str, Fault] = {}


def fault(name: str, **how: Any) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Make a fault of a function."""

    def make(play: Callable[[Stage], None]) -> Callable[[Stage], None]:
        FAULTS[name] = Fault(name=name, play=play, **how)
        return play

    return make


def _shorter(stage: Stage) -> float:
    return stage.random.uniform(0.5, SESSION_S / 2)


def _longer(stage: Stage) -> float:
    return stage.random.uniform(SESSION_S + 3, SESSION_S + 8)


@fault("join")
def join(stage: Stage) -> None:
    """A member more, where a name is free; else one less, and it comes again."""
    if (name := stage.absent()) is None:
        leaving = stage.one_that_goes()
        stage.field.stop(leaving)
        name = leaving.name
    stage.start(name)


@fault("leave")
def leave(stage: Stage) -> None:
    stage.field.stop(stage.one_that_goes())


@fault("restart")
def restart(stage: Stage) -> None:
    """SIGTERM, and another process takes its name."""
    leaving = stage.one_that_goes()
    stage.field.stop(leaving)
    stage.start(leaving.name)


@fault("kill -9")
def kill(stage: Stage) -> None:
    stage.field.kill(stage.one_that_goes())


@fault("SIGSTOP, shorter than the session")
def stall_shorter(stage: Stage) -> None:
    stage.silent(stage.anyone(), _shorter(stage), dead=False)


@fault("SIGSTOP, longer than the session")
def stall_longer(stage: Stage) -> None:
    stage.silent(stage.anyone(), _longer(stage), dead=True)


@fault("store killed and started")
def store_restarts(stage: Stage) -> None:
    stage.redis.kill()
    stage.field.stay(stage.random.uniform(0.2, 3.0))
    stage.redis.restart()


@fault("store silent, shorter than the lease")
def store_silent_shorter(stage: Stage) -> None:
    stage.redis.pause()
    stage.field.stay(_shorter(stage))
    stage.redis.resume()


@fault("store silent, longer than the lease")
def store_silent_longer(stage: Stage) -> None:
    stage.redis.pause()
    stage.field.stay(_longer(stage))
    stage.redis.resume()


@fault("broker killed and started")
def broker_is_killed(stage: Stage) -> None:
    stage.server.start_broker(stage.kill_broker())


@fault("broker stopped and started")
def broker_is_stopped(stage: Stage) -> None:
    stage.server.start_broker(stage.stop_broker())


@fault("broker silent, shorter than the session")
def broker_silent_shorter(stage: Stage) -> None:
    number = stage.pause_broker()
    stage.field.stay(_shorter(stage))
    stage.server.resume_broker(number)


@fault("broker silent, longer than the session")
def broker_silent_longer(stage: Stage) -> None:
    number = stage.pause_broker()
    stage.field.stay(_longer(stage))
    stage.server.resume_broker(number)


@fault("name server away", protocols=("rocketmq",))
def name_server_is_away(stage: Stage) -> None:
    stage.field.rocketmq.stop_name_server()
    stage.field.stay(_longer(stage))
    stage.field.rocketmq.start_name_server()
    stage.field.rocketmq.await_brokers()


@fault("partitions added")
def partitions_are_added(stage: Stage) -> None:
    stage.grow()


_CUTS: Final[dict[str, tuple[Way, ...]]] = {"both ways": WAYS, "out": ("out",), "back": ("back",)}


def _cut(to: str, ways: tuple[Way, ...], *, longer: bool) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        member = stage.anyone()
        seconds, reset = (_longer if longer else _shorter)(stage), stage.random.random() < 0.5
        wires = stage.wires(member, to)
        # Who is out of the store's reach past its lease is dead for it: what it did meanwhile nobody has been told.
        with stage.out_of_reach(member) if to == "store" and longer else contextlib.nullcontext():
            for each in wires:
                each.cut(ways)
            stage.field.stay(seconds)
            for each in wires:
                each.mend(reset=reset)

    return play


for _to, _protocols in (("broker", KAFKA), ("store", EVERYWHERE)):
    for _name, _ways in _CUTS.items():
        for _longer_than in (False, True):
            _length = "longer" if _longer_than else "shorter"
            fault(f"{_to} cut off a member {_name}, {_length} than the session", protocols=_protocols)(
                _cut(_to, _ways, longer=_longer_than)
            )
