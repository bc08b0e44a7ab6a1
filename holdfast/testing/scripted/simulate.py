"""simulate: a hundred worlds around the user's app, each with other faults at other times, from a seed."""

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

#: What `simulate` does to members and servers.
Kind = Literal[
    "crash", "stop", "join", "stall", "revoke", "lose", "slow", "store silent", "store slow", "commits refused"
]
_KINDS: tuple[Kind, ...] = get_args(Kind)
#: How many faults a world has at most, over how long, and how long they last at most.
_FAULTS, _OVER_S, _LAST_S = 6, 30.0, 30.0
#: The longest half of a call.
_TAKES_S = 0.5
#: How long it may take until all is done, after all that was done to it.
_SETTLE_S = 900.0
#: How many worlds are tried to find a smaller one that fails.
_SMALLER = 60


class Fault(NamedTuple):
    """One thing that happens to a world."""

    at_s: float
    kind: Kind
    #: Which of the members that live then, modulo their number.
    member: int
    for_s: float

    def __str__(self) -> str:
        return f"at {self.at_s:.3f} s: {self.kind} ({self.for_s:.1f} s)"


class Plan(NamedTuple):
    """One world."""

    seed: int
    #: Each with the time at which it is sent.
    records: Sequence[tuple[float, Record]]
    faults: Sequence[Fault]
    takes_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The result of a search."""

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
    """Play your app in so many worlds. In each, members crash and are started again, stand still, join and leave;
    partitions move and are lost; the store is silent or slow; commits are refused; and each call of a handler takes
    some time, before it does anything and after. The seed decides what happens when.

    In each world, when all has come to rest: `assert_nothing_lost()`, `assert_order()`, `assert_committed()` and
    `assert_once(except_in_hand=True)`, and then `check`.

    Args:
        make_app: as of `ScriptedWorld.member`.
        records: made with `make_record`: their topic, key, value and headers count.
        seeds: how many worlds; or which: `seeds=[17]` plays that one again.
        members: how many processes there are at the start.
        begin: called with each world before anything happens in it: to empty what the last one has left.
        check: called with each world when it has come to rest: your own assertions.
        protocol: as of `ScriptedWorld`.

    Returns:
        What was searched.

    Raises:
        AssertionError: a promise was broken. A smaller world that breaks it too is looked for; its story is told.
        ValueError: there are no records.
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
    # In the order in which they were given, some at once and some later.
    times = sorted(chance.choice((0.0, chance.uniform(0.0, _OVER_S))) for _ in records)
    takes_s = chance.choice((0.0, 0.05, _TAKES_S))
    faults = [
        Fault(
            # Any time; or while a record is likely to be handled, which is when most harm is done.
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
        return  # it was stopped twice, and started again after the other time
    if member.alive:
        world.after(1.0, lambda: _again(world, member, process))  # it still drains
    else:
        member.restart()


def _smaller(
    plan: Plan, error: AssertionError, failure: Callable[[Plan], AssertionError | None]
) -> tuple[Plan, AssertionError]:
    """Leave out faults, halves of the records, then single ones, as long as what is left fails."""
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
    """Leave out halves, quarters, and so on, down to single ones, as long as what is left fails.

    Args:
        items: what there is.
        fails: tries some of them, and keeps them if they still fail. Says no once it has tried often enough.
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
