"""Stories of death and silence: of members, and of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.harness.group.config import EVERYWHERE, KAFKA
from tests.harness.group.intake import Behind
from tests.harness.group.story import story
from tests.harness.servers.redis import RedisServer
from tests.harness.servers.sentinels import Sentinels

if TYPE_CHECKING:
    from tests.harness.group.field import Field
    from tests.harness.group.outcome import Outcome

_HOLDFAST = ("holdfast",)


@story(protocols=EVERYWHERE)
def kill(field: Field) -> None:
    """Kill -9 of one of two members; later another takes its place."""
    a, b = field.start("a"), field.start("b")
    field.flow()
    field.until_spread(a, b)
    field.until_handled(field.random.randrange(300, 1_200))  # anywhere between two commits
    field.kill(a)
    field.until_spread(b)
    c = field.start("c")
    field.until_spread(b, c)


_STEADY_PER_S = 200


def _no_spike(outcome: Outcome) -> list[str]:
    """While the backlog is worked off much is produced: at 1.4 times the usual intake two and a half times as much.
    Who takes it all at once is done when a tenth of it has come. How high the peak was the benchmark tells: a machine
    that is busy elsewhere stalls the flow and bunches it."""
    [death] = outcome.deaths
    behind, usual = Behind(outcome.produced, outcome.entries), _STEADY_PER_S // 4
    came, backlog = behind.came_meanwhile(death.at_ns, usual), behind.at(behind.worst(death.at_ns))
    if came is None:
        return ["the backlog was never worked off"]
    return [] if came * 2 >= backlog else [f"only {came} were produced while a backlog of {backlog} was worked off"]


@story(kinds=_HOLDFAST, check=_no_spike, protocols=EVERYWHERE)
def takeover_with_a_backlog(field: Field) -> None:
    """Kill -9 under a steady flow: its partitions come with what was produced while nobody had them."""
    a, b = field.start("a"), field.start("b")
    field.flow(_STEADY_PER_S)
    field.until_spread(a, b)
    field.until_handled(5 * _STEADY_PER_S)  # the survivor knows what is usual
    field.kill(b)
    field.until_spread(a)
    field.until_caught_up(_STEADY_PER_S // 4)


@story(protocols=EVERYWHERE)
def kill_under_backlog(field: Field) -> None:
    """Kill -9 in the middle of a backlog: every batch is full, much is fetched and not yet handled."""
    a, b = field.start("a"), field.start("b")
    field.flow(100)
    field.until_spread(a, b)
    field.traffic.burst(field.topic, 800, work_ms=20)
    field.until_works(a, field.started(a) + field.random.randrange(20, 80))
    field.kill(a)
    field.until_spread(b)


@story(kinds=_HOLDFAST, protocols=EVERYWHERE)
def kill_with_slow_handlers(field: Field) -> None:
    """The dead member has long handlers in hand: its successor runs them again, and only them."""
    a, b = field.start("a"), field.start("b")
    field.flow(150)
    field.until_spread(a, b)
    field.until_started(field.send_slow(4_000))
    field.kill(a)
    field.until_spread(b)


@story(protocols=EVERYWHERE)
def stall(field: Field) -> None:
    """SIGSTOP of one of two members until the other has all partitions, then SIGCONT: it must find itself fenced."""
    a, b = field.start("a"), field.start("b")
    field.flow()
    field.until_spread(a, b)
    field.until_handled(field.random.randrange(300, 1_200))
    field.stall(a)
    field.until_spread(b)
    field.go_on(a)
    field.until_spread(a, b)


@story(config={"redis_url": None}, may_repeat=frozenset(KAFKA), kinds=_HOLDFAST)
def kill_without_store(field: Field) -> None:
    """claims=None: a crash repeats what was not committed, and loses nothing."""
    a, b = field.start("a"), field.start("b")
    field.flow()
    field.until_spread(a, b)
    field.kill(a)
    field.until_spread(b)


@story(config={"redis_url": None}, may_repeat=frozenset(KAFKA), kinds=_HOLDFAST)
def rolling_restart_without_store(field: Field) -> None:
    """claims=None: nothing is lost. What was done above the watermark, out of order, nobody remembers, and a broker may
    refuse the commit of what goes in the second phase of a cooperative rebalance: those records run again."""
    for name in "abc":
        field.start(name)
    field.flow()
    field.until_spread(*field.members.values())
    for name in "abc":
        field.stop(field.members[name])
        field.start(name)
        field.until_spread(*field.members.values())


@story(config={"key": "order_id"}, kinds=("holdfast", "loop"), protocols=EVERYWHERE)
def business_keys_through_a_crash(field: Field) -> None:
    """One order in twenty is sent twice: by business key each is executed once, through a join and a kill -9."""
    field.traffic.duplicates = 0.05
    a = field.start("a")
    field.flow()
    field.until_works(a)
    b = field.start("b")
    field.until_spread(a, b)
    field.kill(a)
    field.until_spread(b)


def _stay_without_store(field: Field, seconds: float) -> None:
    """Handlers that start meanwhile need not run twice: nothing else tells of them."""
    field.stay(1)  # what had its claim starts, and ends
    before = _started(field)
    field.stay(seconds)
    if more := _started(field) - before:
        raise field.error(f"{more} records were started while the store was away")


def _started(field: Field) -> int:
    return sum(field.started(each) for each in field.members.values())


@story(kinds=_HOLDFAST, protocols=EVERYWHERE)
def store_stalls(field: Field) -> None:
    """Redis does not answer for 5 s, and then for longer than a lease, which ends all sessions: nothing runs twice, and
    the group goes on by itself."""
    with RedisServer(aof=True) as store:
        a, b = (field.start(name, redis_url=store.url) for name in "ab")
        field.flow()
        field.until_spread(a, b)
        for seconds in (5, 8):
            store.pause()
            _stay_without_store(field, seconds - 1)
            store.resume()
            field.until_spread(a, b)
        field.wind_up()  # before the store goes


@story(kinds=_HOLDFAST, protocols=EVERYWHERE)
def store_restarts(field: Field) -> None:
    """Redis is killed and comes back with its data after a while; probes tell so, from the first second to the last."""
    with RedisServer(aof=True) as store:
        a = field.start("a", redis_url=store.url, endpoint=str(field.home / "a.endpoint"))
        b = field.start("b", redis_url=store.url)
        field.flow()
        field.until_spread(a, b)
        field.until(lambda: a.probe("/ready") == (200, []), "a is ready")
        store.kill()
        paused = (503, ["paused: the store does not answer"])
        field.until(lambda: a.probe("/ready") == paused, "a is not ready, since the store is away")
        if a.probe("/live")[0] != 200:
            raise field.error("a is taken for dead while the store is away")
        _stay_without_store(field, field.random.uniform(1.0, 3.0))
        store.restart()
        field.until_spread(a, b)
        field.until(lambda: a.probe("/ready") == (200, []), "a is ready again")
        field.wind_up()  # before the store goes


@story(kinds=_HOLDFAST, protocols=KAFKA, config={"session_timeout_ms": 30_000})
def store_fails_over(field: Field) -> None:
    """The master of a Redis with Sentinel goes on while its replicas hear nothing, then dies, and one of them is
    promoted: what it lacks the members tell it again."""
    with Sentinels() as store:
        a, b = (field.start(name, redis_url=store.url()) for name in "ab")
        field.flow()
        field.until_spread(a, b)
        store.cut_replicas()
        field.until_spread(a, b)
        store.fail_over()
        field.until_spread(a, b)
        field.wind_up()  # before the store goes


@story(kinds=_HOLDFAST, protocols=EVERYWHERE)
def join_while_store_stalls(field: Field) -> None:
    """A rebalance in the middle of an outage of the store: partitions move, nothing is run until it answers."""
    with RedisServer(aof=True) as store:
        a = field.start("a", redis_url=store.url)
        field.flow()
        field.until_spread(a)
        b = field.start("b", redis_url=store.url)
        field.until_works(b)
        store.pause()
        field.pause(b)  # b's silence and return: no rebalance, or one; either way nothing may run twice
        field.stay(2)
        field.go_on(b)
        store.resume()
        field.until_spread(a, b)
        field.wind_up()  # before the store goes
