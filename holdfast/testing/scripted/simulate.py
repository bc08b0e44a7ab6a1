"""simulate: many worlds around the user's app. A seed decides the faults of each world and their times."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar, get_args

from holdfast.testing.scripted.world import ScriptedWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.records import Record
    from holdfast.testing.process import Process
    from holdfast.testing.scripted.member import MakeApp, Member

T = TypeVar("T")

#: The faults of members and servers.
Kind = Literal[
    "crash", "stop", "join", "stall", "revoke", "lose", "slow", "store silent", "store slow", "commits refused"
]
_KINDS: tuple[Kind, ...] = get_args(Kind)
#: A world has at most so many faults, within so many seconds; each lasts at most so long.
_FAULTS, _OVER_S, _LAST_S = 6, 30.0, 30.0
#: The longest sleep before a handler runs, and after.
_TAKES_S = 0.5
#: A world must come to rest within so many virtual seconds.
_SETTLE_S = 900.0
#: The most worlds that are played to find a smaller one that fails.
_SMALLER = 60


class Fault(NamedTuple):
    """One fault of a world."""

    at_s: float
    kind: Kind
    #: Index of a member among those that run then, modulo their number.
    member: int
    for_s: float

    def __str__(self) -> str:
        return f"at {self.at_s:.3f} s: {self.kind} ({self.for_s:.1f} s)"


class Plan(NamedTuple):
    """One world as data."""

    seed: int
    #: (virtual second at which it is sent, record).
    records: Sequence[tuple[float, Record]]
    faults: Sequence[Fault]
    takes_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The result of `simulate`: worlds played, their virtual seconds, and calls of handlers."""

    worlds: int
    virtual_s: float
    calls: int


def simulate(
    make_app: MakeApp,
    records: Iterable[Record],
    seeds: int | Iterable[int] = 100,
    *,
    members: int = 3,
    begin: Callable[[ScriptedWorld], object] | None = None,
    check: Callable[[ScriptedWorld], object] | None = None,
    protocol: Literal["consumer", "cooperative", "eager"] = "consumer",
) -> Simulated:
    """Play your app in many worlds. Members crash and restart, freeze, join and leave; partitions move and are lost;
    the store is silent or slow; commits are refused; each call of a handler sleeps before it runs and after. The seed
    of a world decides its faults and their times.

    When a world is at rest, these are called: `assert_nothing_lost()`, `assert_once(except_in_hand=True)`,
    `assert_order()`, `assert_committed()`, and then `check`.

    Args:
        make_app: as in `ScriptedWorld.member`.
        records: from `make_record`; their topic, key, value and headers are sent.
        seeds: number of worlds (seeds 1, 2, ...), or the seeds themselves: `seeds=[17]` plays world 17 again.
        members: number of processes at the start.
        begin: called with each world before it starts, to reset what the last world has left.
        check: called with each world at rest, for your own assertions.
        protocol: as in `ScriptedWorld`.

    Returns:
        What was played, in numbers.

    Raises:
        AssertionError: an assertion failed. The message has the story of a smaller world that fails too, if one is
        found. ValueError: there are no records.
    """
    __tracebackhide__ = True
    given, calls, virtual_s, worlds = list(records), 0, 0.0, 0
    if not given:
        raise ValueError("no records: worlds in which nothing is sent show nothing")

    def failure(plan: Plan) -> AssertionError | None:
        nonlocal calls, virtual_s
        with ScriptedWorld(plan.seed, protocol=protocol) as world:
            try:
                _play(world, plan, make_app, members, begin)
                if check is not None:
                    check(world)
            except AssertionError as error:
                return error
            finally:
                calls, virtual_s = calls + len(world.book.calls), virtual_s + world.now
        return None

    for seed in range(1, seeds + 1) if isinstance(seeds, int) else seeds:
        plan = _drawn(seed, given)
        worlds += 1
        error = failure(plan)
        if error is not None:
            plan, error = _smaller(plan, error, failure)
            faults = "".join(f"\n  {fault}" for fault in plan.faults) or " none"
            raise AssertionError(
                f"seed {seed}: {error}\n\nIt needs {len(plan.records)} records and these faults:{faults}\n"
                f"To play it again: simulate(..., seeds=[{seed}])"
            ) from None
    return Simulated(worlds=worlds, virtual_s=virtual_s, calls=calls)


def _drawn(seed: int, records: Sequence[Record]) -> Plan:
    chance = Random(f"{seed} plan")
    # Records keep their order. About half are sent at once, the others at random times.
    times = sorted(chance.choice((0.0, chance.uniform(0.0, _OVER_S))) for _ in records)
    takes_s = chance.choice((0.0, 0.05, _TAKES_S))
    faults = [
        Fault(
            # A random time, or shortly after a record is sent: a fault during a call does most harm.
            chance.choice((chance.uniform(0.0, _OVER_S), chance.choice(times) + chance.uniform(0.0, 2 * takes_s))),
            chance.choice(_KINDS),
            chance.randrange(100),
            chance.uniform(0.1, 1.0) ** 2 * _LAST_S,
        )
        for _ in range(chance.randint(1, _FAULTS))
    ]
    return Plan(seed, list(zip(times, records, strict=True)), sorted(faults), takes_s)


def _play(
    world: ScriptedWorld,
    plan: Plan,
    make_app: MakeApp,
    members: int,
    begin: Callable[[ScriptedWorld], object] | None,
) -> None:
    if begin is not None:
        begin(world)
    world.handlers_take(plan.takes_s)
    for _ in range(members):
        world.member(make_app, restart=True)
    for at_s, record in plan.records:
        world.after(at_s, lambda record=record: world.send(record))  # type: ignore[misc]
    for fault in plan.faults:
        world.after(fault.at_s, lambda fault=fault: _happens(world, fault, make_app))  # type: ignore[misc]
    world.settle(_SETTLE_S)
    world.assert_nothing_lost()
    world.assert_once(except_in_hand=True)
    world.assert_order()
    world.assert_committed()


def _happens(world: ScriptedWorld, fault: Fault, make_app: MakeApp) -> None:
    able = [each for each in world.members if each.alive and not each.source.stalled]
    member = able[fault.member % len(able)] if able else None
    if fault.kind == "store silent":
        world.store.silent(fault.for_s, hears=fault.member % 2 == 0)
    elif fault.kind == "store slow":
        world.store.slow(min(0.3, fault.for_s / _LAST_S))
        world.after(fault.for_s, lambda: world.store.slow(0.0))
    elif fault.kind == "join":
        world.member(make_app, restart=True)
    elif member is not None:
        _befalls(world, fault, member)


def _befalls(world: ScriptedWorld, fault: Fault, member: Member) -> None:
    if fault.kind in ("crash", "stop"):
        member.crash() if fault.kind == "crash" else member.stop()
        process = member.process
        world.after(fault.for_s, lambda: _again(world, member, process))
    elif fault.kind == "stall":
        member.stall(fault.for_s)
    elif fault.kind == "slow":
        member.slow(fault.for_s / 10)
        world.after(fault.for_s, lambda: member.slow(0.0))
    elif member.partitions:
        partition = member.partitions[fault.member % len(member.partitions)]
        if fault.kind == "revoke":
            member.revoke(*partition[:2])
        elif fault.kind == "lose":
            member.lose(*partition[:2])
        else:
            world.refuse_commits(*partition[:2], times=1 + fault.member % 3)


def _again(world: ScriptedWorld, member: Member, process: Process) -> None:
    if member.process is not process:
        return  # an earlier fault has restarted it already
    if member.alive:
        world.after(1.0, lambda: _again(world, member, process))  # it drains still
    else:
        member.restart()


def _smaller(
    plan: Plan, error: AssertionError, failure: Callable[[Plan], AssertionError | None]
) -> tuple[Plan, AssertionError]:
    """Leave out faults, then records, as long as the world still fails."""
    tries = _SMALLER

    def fails(less: Plan) -> bool:
        nonlocal tries, plan, error
        tries -= 1
        found = failure(less)
        if found is not None:
            plan, error = less, found
        return found is not None

    for fault in plan.faults:
        fails(plan._replace(faults=[each for each in plan.faults if each is not fault]))
    thin(plan.records, lambda records: tries > 0 and bool(records) and fails(plan._replace(records=list(records))))
    return plan, error


def thin(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> None:
    """Leave out halves of the items, then quarters, down to single items, as long as the rest still fails.

    Args:
        items: of a world that fails.
        fails: plays a world with some of the items, and keeps it if it fails. Returns False when its plays are used up.
    """
    size = max(1, len(items) // 2)
    while items:
        at = 0
        while at < len(items):
            rest = [*items[:at], *items[at + size :]]
            if fails(rest):
                items = rest
            else:
                at += size
        if size == 1:
            break
        size //= 2
