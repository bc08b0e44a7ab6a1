"""Member: one process of a world, with a real app whose handlers follow each record's plan (work.py)."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import (
    AccessRefused,
    DeadLetterError,
    HandlerFailed,
    HandlerHung,
    LetterTooLarge,
    SourceUnavailable,
    StoreUnavailable,
    UnknownTopic,
)
from holdfast.plugin.app import Holdfast
from holdfast.plugin.events import HandlerGivenUp, HandlerOverdue, Overrun, RewindIgnored, SessionLost
from holdfast.plugin.ports import CommitFate
from holdfast.plugin.retrying.retry import Retry
from tests.simulation.judging.drains import has_drained, may_be_dry
from tests.simulation.playing.client import Client
from tests.simulation.playing.work import Curable, Hopeless, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from holdfast.plugin.engine.loop import Engine
    from holdfast.plugin.events import Event
    from holdfast.plugin.own_loop.driven import Driven
    from holdfast.plugin.ports import LeasedSource, PartitionedSource
    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.records import Partition
    from holdfast.testing.process import Process
    from holdfast.testing.tasks import Task
    from holdfast.timing import Deadline
    from tests.simulation.drawing.world import Handling, Kind
    from tests.simulation.playing.stage import Stage

_LETTER_S = 0.01
#: A member learns within so long that it has lost its partitions.
_THROWN_OUT_S = 1.0
#: Errors that an app may end with in a world.
_EXPECTED = (HandlerHung, HandlerFailed)
#: The same while it starts.
_AT_START = (AccessRefused, StoreUnavailable, SourceUnavailable, UnknownTopic)


def registered(handling: Handling, store: object) -> dict[str, Any]:
    """The arguments of `Holdfast.handler`, by the names of its parameters. Args: store: the app's own."""
    return {
        "topics": handling.topics,
        "name": handling.name,
        "key": "unit" if handling.keyed else None,
        "scope": "shared" if handling.shared_scope else None,
        "batch": handling.batch,
        "dead_letter": f"{handling.name}.letters" if handling.dead_letter else None,
        "dead_letter_limit": handling.limit,
        "letter_too_large": handling.letter_too_large,
        "timeout_s": handling.timeout_s,
        "transaction": store if handling.transaction else None,
        "retry": Retry(
            attempts=handling.attempts,
            wait_initial_s=handling.wait_initial_s,
            wait_max_s=handling.wait_max_s,
            multiplier=handling.multiplier,
            jitter_s=handling.jitter_s,
            retry_on=(Curable,) if handling.retry_on else (Exception,),
            give_up_on=(Hopeless,) if handling.give_up_on else (),
            topics=handling.delays_s,
            topic_name=handling.topic_name,
        ),
    }


class Member(ABC):
    """One start of one process."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        process: Process,
        source: PartitionedSource | LeasedSource,
    ) -> None:
        self.stage, self.name, self.process, self.source = stage, name, process, source
        #: The error that its app ended with.
        self.error: Exception | None = None
        #: How often it was asked to stop.
        self.stops = 0
        #: Until then it is not judged: it has lost its partitions, its session, or the broker.
        self.thrown_out_until = 0.0
        #: Whether it has lost its session or partitions, which then did not change owners in order.
        self.has_lost = False
        #: When its session was lost last.
        self.session_lost_at = -math.inf
        #: Whether it was interrupted by Ctrl-C; and whether it has left.
        self.interrupted = self._has_left = False
        self._first_thread: Task | None = None
        #: When a call of its loop was broken off last: it may have taken its partitions over anew since.
        self.torn_at = 0.0
        #: The judges at its source; None = there are none for its kind.
        self.client: Client | None = None

    def _begin(self) -> None:
        self._first_thread = self.process.spawn(self._run, f"{self.name} loop")

    @abstractmethod
    def _main(self) -> None:
        """The first thread of the process."""

    @abstractmethod
    def stop(self) -> None:
        """Ask it to leave, as a signal does. In the hub."""

    @property
    def leaves_at_once(self) -> bool:
        """Whether it was asked to stop twice: then it waits neither for handlers nor for the answer to its last
        commit."""
        return self.stops > 1 or self.interrupted

    @property
    def hurried(self) -> bool:
        """Whether it does not wait for handlers that run."""
        return self.leaves_at_once or self.stage.now < self.thrown_out_until

    def interrupt(self, after: int = 0) -> None:
        """Ctrl-C where the application has left it to Python, `after` waits later. In the hub."""
        if self.process.alive and not self._has_left and self._first_thread is not None:
            self.interrupted = True
            self.stage.say(self.name, "is interrupted")
            self._first_thread.interrupt(KeyboardInterrupt(), after)

    def cut_off(self, seconds: float) -> None:
        """Member and broker may not hear each other for so long. In the hub."""
        self.thrown_out_until = max(self.thrown_out_until, self.stage.now + seconds + _THROWN_OUT_S)

    def thrown_out(self) -> None:
        """Note that the member's partitions were taken away."""
        self.thrown_out_until = max(self.thrown_out_until, self.stage.now + _THROWN_OUT_S)

    @abstractmethod
    def gone(self) -> None:
        """End the process: its runs never end."""

    @property
    @abstractmethod
    def engine(self) -> Engine | Driven | None:
        """The engine, for the judges to look into."""

    def on_event(self, event: Event) -> None:
        """Note an event of the engine."""
        stage, judges = self.stage, self.stage.judges
        stage.say(self.name, event)
        stage.ground.told(self.name, event)
        if self.client is not None:
            self.client.reports.told(event)
        if isinstance(event, SessionLost):
            self.thrown_out()
            self.has_lost, self.session_lost_at = True, stage.now
            judges.lost.add(event.session)
        if isinstance(event, RewindIgnored) and stage.world.in_order and not self._overwritten(event.partition):
            where = f"{event.partition} comes to {self.name} with the offset {event.offset}"
            marked = judges.marked_in_transactions(stage.log(event.partition), event.offset, event.watermark)
            if not (marked or any(each.has_lost or each.leaves_at_once for each in stage.members)):
                judges.broken("REWOUND", f"{where}, and all below {event.watermark} was done before its hand-over")
        if isinstance(event, Overrun | HandlerOverdue | HandlerGivenUp) and stage.world.loop is None:
            record = stage.placed_at(self, event.partition, event.offset)
            if isinstance(event, Overrun):
                hurried = self.hurried or has_drained(self.engine)
                judges.overran(self.name, record, hurried=hurried, starving=may_be_dry(self.engine))
            elif isinstance(event, HandlerOverdue):
                judges.overdue(self.name, record)
            else:
                judges.gave_up(self.name, record)

    # ---- inside
    def _overwritten(self, partition: Partition) -> bool:
        """Whether the committed offset comes from a commit that arrived a second time, late, over a later one. No
        broker tells the two apart. The position is right, and the owner commits it anew after `commit_refresh_s`."""
        done = (each for each in reversed(self.stage.group.attempts) if each.partition == partition)
        return next((each.again for each in done if each.fate is CommitFate.DONE), False)

    def _stops_for_a_letter(self) -> bool:
        handlers = self.stage.world.handlers
        return isinstance(self.error, LetterTooLarge) and any(each.letter_too_large == "stop" for each in handlers)

    def _run(self) -> None:
        try:
            self._main()
        except KeyboardInterrupt:
            pass  # it ends the program
        except Exception as error:  # noqa: BLE001 - for the judges
            self.error = error
        self._has_left = True
        ran = self.engine is not None and self.engine.snapshots.ran
        if self.error is None and self.client is not None and not self.interrupted:
            self.client.reports.ended()
        expected = self.error is None or isinstance(self.error, _EXPECTED) or self._stops_for_a_letter()
        self.stage.left(self, expected=expected or (not ran and isinstance(self.error, _AT_START)))


class AppMember(Member):
    """A member with an app."""

    def __init__(self, stage: Stage, name: str, process: Process, source: PartitionedSource | LeasedSource) -> None:
        super().__init__(stage, name, process, source)
        world = stage.world
        self._work = Work(stage, name, process)
        self.client = Client(self, source) if hasattr(source, "commit") else None
        letters: _Letters | None = _Letters(self)
        if self.client is not None:
            self._work.begins = self.client.reports.started
            if stage.retry_topics:
                self.client.dead_letters, letters = lambda: _Letters(self), None
        self._claims = claims = stage.store.claims(process)
        self.app = Holdfast(
            source if self.client is None else cast("PartitionedSource", self.client),
            claims=claims,
            settings=world.settings,
            dead_letters=letters,
            observers=[self],
            runtime=process.runtime,
        )
        for handling in world.handlers:
            self._register(handling)
        for middleware in self._work.middlewares:
            self.app.use(middleware)
        if world.around:
            self.app.on_dead_letter(self._work.letter)
        self._begin()

    def stop(self) -> None:
        """Implements `Member.stop`."""
        self.stops += 1
        self.app.stop()

    def gone(self) -> None:
        """Implements `Member.gone`."""
        self._work.gone()

    @property
    def engine(self) -> Engine | None:
        """Implements `Member.engine`."""
        return self.app._engine

    # ---- inside
    def _main(self) -> None:
        self.app.run(install_signal_handlers=False)

    def _register(self, handling: Handling) -> None:
        work = self._work
        calls: dict[Kind, Callable[..., Any]] = {
            "plain": work.plain,
            "batch": work.batch,
            "async": work.coroutine,
            "async batch": work.batch_coroutine,
        }
        if handling.transaction:
            calls |= {"plain": work.plain_in_transaction, "batch": work.batch_in_transaction}
        self.app.handler(**registered(handling, self._claims))(calls[handling.kind])


class _Letters:
    """Sends a member's dead letters. Any thread."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def check(self, topics: Collection[str], deadline: Deadline) -> None:
        """Implements `DeadLetters.check`: there is nothing to check."""

    def send(self, letter: Letter, deadline: Deadline) -> None:
        """Implements `DeadLetters.send`."""
        stage, record = self._member.stage, letter.record
        self._member.process.runtime.sleep(stage.chance.random() * _LETTER_S)
        if stage.letters_down:
            raise DeadLetterError("no broker takes dead letters: the world says so")
        placed = stage.placed(record)
        if placed.plan.large and not letter.without_value:
            raise LetterTooLarge(f"{letter.topic} takes no letter of {placed} with its value: the world says so")
        blind = stage.ground.is_blind(record.fence, placed)
        if letter.without_value:
            stage.judges.shortened(self._member.name, placed)
        if letter.topic in stage.retry_topics:
            stage.retry(placed, letter, self._member.process.runtime.wall_ms())
        stage.judges.lettered(self._member.name, record.fence.session, placed, letter.attempts, blind=blind)
        self._member.process.runtime.sleep(stage.chance.random() * _LETTER_S)

    def close(self, deadline: Deadline) -> None:
        """Implements `DeadLetters.close`: there is nothing to close."""


def value_of(number: int, unit: str | None) -> str:
    """The value of a record."""
    return json.dumps({"n": number} if unit is None else {"n": number, "unit": unit})
