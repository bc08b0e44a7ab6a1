"""The faults of a soak: each harms, heals, and returns; what follows is for the stage to wait for."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.chaos.soak.stores import STORES
from tests.harness.group.config import EVERYWHERE, KAFKA
from tests.harness.wire import WAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.chaos.soak.stage import Stage
    from tests.chaos.soak.stores import StoreName
    from tests.harness.group.config import Protocol
    from tests.harness.wire import Way

#: Of the members and of the store's leases. Shorter: nobody may notice. Longer: all have noticed.
SESSION_S: Final = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`play` returns when what it did is healed."""

    name: str
    play: Callable[[Stage], None]
    #: Where it can be played.
    protocols: Sequence[Protocol] = EVERYWHERE
    stores: Sequence[StoreName] = STORES
    #: At least.
    brokers: int = 1

    def fits(self, protocol: Protocol, brokers: int, store: StoreName) -> bool:
        """Whether it can be played there."""
        return protocol in self.protocols and brokers >= self.brokers and store in self.stores


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
    """A master. Where it has a replica, this is promoted before."""
    heal = stage.store.kill()
    stage.field.stay(stage.random.uniform(0.2, 3.0))
    heal()


@fault("store silent, shorter than the lease")
def store_silent_shorter(stage: Stage) -> None:
    heal = stage.store.pause()
    stage.field.stay(_shorter(stage))
    heal()


@fault("store silent, longer than the lease")
def store_silent_longer(stage: Stage) -> None:
    """Where it has a replica, this is promoted, and the master does not know when it goes on."""
    heal = stage.store.pause()
    stage.field.stay(_longer(stage))
    heal()


@fault("store moves a slot", stores=("cluster",))
def store_moves_a_slot(stage: Stage) -> None:
    stage.store.move(stage.random)


@fault("broker killed and started")
def broker_is_killed(stage: Stage) -> None:
    number = stage.a_broker()
    stage.server.kill_broker(number)
    stage.server.start_broker(number)


@fault("broker stopped and started")
def broker_is_stopped(stage: Stage) -> None:
    number = stage.a_broker()
    stage.server.stop_broker(number)
    stage.server.start_broker(number)


@fault("broker silent, shorter than the session")
def broker_silent_shorter(stage: Stage) -> None:
    _silence(stage, _shorter(stage))


@fault("broker silent, longer than the session")
def broker_silent_longer(stage: Stage) -> None:
    _silence(stage, _longer(stage))


def _silence(stage: Stage, seconds: float) -> None:
    number = stage.a_broker()
    stage.server.pause_broker(number)
    stage.field.stay(seconds)
    stage.server.resume_broker(number)


@fault("broker away for longer", protocols=("rocketmq",), brokers=2)
def broker_is_away(stage: Stage) -> None:
    """Its queues stand still, those of the other do not."""
    number = stage.a_broker()
    stage.server.kill_broker(number)
    stage.field.stay(_longer(stage))
    stage.server.start_broker(number)


@fault("coordinator killed, others take over", protocols=KAFKA, brokers=3)
def coordinator_is_killed(stage: Stage) -> None:
    dead = stage.kafka.coordinator(stage.field.group)
    stage.kafka.kill_broker(dead)
    stage.field.stay(_longer(stage))  # the others notice after 9 s
    stage.kafka.start_broker(dead)


@fault("leaders moved", protocols=KAFKA, brokers=3)
def leaders_are_moved(stage: Stage) -> None:
    """Each partition gets another order of replicas, and with it perhaps another leader."""
    brokers, topic = stage.kafka.brokers, stage.field.topic
    stage.kafka.reassign(
        topic, {each: stage.random.sample(brokers, len(brokers)) for each in stage.kafka.partitions(topic)}
    )


@fault("brokers restarted one by one", brokers=2)
def brokers_are_restarted(stage: Stage) -> None:
    brokers: Sequence[Any] = stage.server.brokers
    for number in brokers:
        stage.server.stop_broker(number)
        stage.field.stay(stage.random.uniform(0.5, 2.0))
        stage.server.start_broker(number)


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


# Sentinels name the servers' own addresses: no wire leads there.
_WIRED: Final[tuple[StoreName, ...]] = ("one", "cluster")
for _to, _protocols, _stores in (("broker", KAFKA, STORES), ("store", EVERYWHERE, _WIRED)):
    for _name, _ways in _CUTS.items():
        for _longer_than in (False, True):
            _length = "longer" if _longer_than else "shorter"
            fault(f"{_to} cut off a member {_name}, {_length} than the session", protocols=_protocols, stores=_stores)(
                _cut(_to, _ways, longer=_longer_than)
            )
