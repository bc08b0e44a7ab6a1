"""Parts: creates all parts of one app. Each part gets what it uses; none knows the engine that they are in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.plugin.engine.flow.intake import Intake
from holdfast.plugin.engine.record.claiming import Claiming
from holdfast.plugin.engine.record.hung_handlers import BlockedLoop, Hung
from holdfast.plugin.engine.record.lanes import Lanes
from holdfast.plugin.engine.record.letter_hooks import LetterHooks
from holdfast.plugin.engine.record.outcomes import Outcomes
from holdfast.plugin.engine.record.recorder import EngineRecorder, Recorder
from holdfast.plugin.engine.record.settling import Settling, Unacked
from holdfast.plugin.engine.record.workers import Workers
from holdfast.plugin.engine.sessions import Sessions
from holdfast.plugin.engine.stopping import Stopping
from holdfast.plugin.engine.store.outage import Outage
from holdfast.plugin.engine.store.owed import Owed
from holdfast.plugin.engine.timers import Timers
from holdfast.plugin.observe.meter import Meter
from holdfast.plugin.observe.observers import Observers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.dedup.claims import ClaimStore
    from holdfast.plugin.audit.settings import Audit
    from holdfast.plugin.engine.family import Family
    from holdfast.plugin.engine.record.calling import Around
    from holdfast.plugin.engine.record.coroutines import Home
    from holdfast.plugin.engine.record.letter_hooks import LetterHook
    from holdfast.plugin.events import Event
    from holdfast.plugin.handlers import Routes
    from holdfast.plugin.ports import DeadLetters, Observer
    from holdfast.plugin.settings import Settings
    from holdfast.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """All parts of one app. One thread owns them, the one that runs it."""

    group: str
    settings: Settings
    routes: Routes
    letters: DeadLetters | None
    runtime: Runtime
    stopping: Stopping
    tell: Callable[[Event], None]
    timers: Timers
    recorder: Recorder
    meter: Meter
    unacked: Unacked
    lanes: Lanes
    owed: Owed
    intake: Intake
    outage: Outage
    workers: Workers
    claiming: Claiming
    settling: Settling
    outcomes: Outcomes
    hung: Hung
    blocked_loop: BlockedLoop
    letter_hooks: LetterHooks
    sessions: Sessions

    def bind(self, family: Family) -> None:
        """Connect them with the family, which is made of them. Once, before the first turn."""
        self.outcomes.family = self.sessions.family = family


def make_parts(
    *,
    store: ClaimStore,
    routes: Routes,
    settings: Settings,
    letters: DeadLetters | None,
    observers: Sequence[Observer],
    group: str,
    audit: Audit | None,
    runtime: Runtime,
    home: Home | None = None,
    around: Around | None = None,
    letter_hooks: Sequence[LetterHook] = (),
) -> Parts:
    """Put them together."""
    timers, meter, stopping = Timers(runtime), Meter(runtime), Stopping()
    recorder = Recorder()
    if audit is not None:
        recorder = audited = EngineRecorder(audit, group=group, timers=timers, runtime=runtime)
        observers = (audited, *observers)
    tell = Observers(meter.saw, observers, runtime).tell
    # Records with the workers, and those that have ended and wait for their mark.
    kinds = {handler.kind for handler in routes.handlers}
    at_once = max(1, settings.workers) + (settings.async_workers if any(kind.is_async for kind in kinds) else 0)
    unacked = Unacked(at_once + settings.mark_batch, kinds)
    lanes, owed, intake, outage = Lanes(unacked), Owed(), Intake(settings, runtime), Outage(runtime, tell)
    workers = Workers(
        settings.workers, f"holdfast-{group}", runtime, async_count=settings.async_workers, home=home, around=around
    )
    hooks = LetterHooks(
        letter_hooks, coroutines=workers.coroutines, runtime=runtime, name=f"holdfast-{group}-letter-hooks", tell=tell
    )
    settling = Settling(recorder, unacked)
    claiming = Claiming(lanes, timers, owed, settling.skip, runtime.random)
    outcomes = Outcomes(
        runtime=runtime,
        lanes=lanes,
        timers=timers,
        workers=workers,
        claiming=claiming,
        settling=settling,
        owed=owed,
        recorder=recorder,
        intake=intake,
        retry_topics=routes.retry_topics,
        letters=letters,
        hung_stop=settings.on_handler_timeout == "stop",
        group=group,
        tell=tell,
        letter_sent=hooks.sent,
        unanswered=outage.unanswered,
        stop=stopping.fail,
    )
    sessions = Sessions(
        store=store,
        open_when_down=settings.store_down == "open",
        runtime=runtime,
        outage=outage,
        calls=meter.store_calls,
        owed=owed,
        claiming=claiming,
        settling=settling,
        workers=workers,
        stopping=stopping,
        tell=tell,
    )
    hung = Hung(
        settings=settings,
        clock=runtime,
        workers=workers,
        outcomes=outcomes,
        lanes=lanes,
        storeless=sessions.storeless,
        tell=tell,
        fail=stopping.fail,
    )
    return Parts(
        group=group,
        settings=settings,
        routes=routes,
        letters=letters,
        runtime=runtime,
        stopping=stopping,
        tell=tell,
        timers=timers,
        recorder=recorder,
        meter=meter,
        unacked=unacked,
        lanes=lanes,
        owed=owed,
        intake=intake,
        outage=outage,
        workers=workers,
        claiming=claiming,
        settling=settling,
        outcomes=outcomes,
        hung=hung,
        blocked_loop=BlockedLoop(workers, runtime, tell),
        letter_hooks=hooks,
        sessions=sessions,
    )
