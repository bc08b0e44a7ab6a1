"""Holdfast: the whole consumer. Registers handlers and runs the loop."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from holdfast.dedup.none import NoClaims
from holdfast.dedup.not_run import is_coroutine, name_of_call
from holdfast.dedup.transactions import check_transactions
from holdfast.errors import SettingError, StateError
from holdfast.plugin.app_parts import A_STORE, AppParts, check_parts
from holdfast.plugin.audit.settings import checked
from holdfast.plugin.engine.leased.leased import Leased
from holdfast.plugin.engine.lifecycle import longest_start_s
from holdfast.plugin.engine.loop import Engine
from holdfast.plugin.engine.partition.partitioned import Partitioned
from holdfast.plugin.handlers import BatchOf, as_topics, new_handler
from holdfast.plugin.handling.transacting import Origins
from holdfast.plugin.hooks import Hooks
from holdfast.plugin.observe.health import Health, HealthCheck
from holdfast.plugin.observe.snapshot import Snapshot
from holdfast.plugin.ports import (
    DeadLetters,
    LeasedSource,
    Observer,
    PartitionedSource,
    RetryTopicsSource,
    transactions_each_s,
)
from holdfast.plugin.retrying.letter_limit import limit_for
from holdfast.plugin.retrying.retry import Retry
from holdfast.plugin.retrying.retry_topics import check_retry
from holdfast.plugin.running import AppTask, Background, run_engine, run_in_loop, signals_handled
from holdfast.plugin.setting_names import known_arguments
from holdfast.plugin.settings import Settings
from holdfast.runtime import MACHINE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.dedup.claims import ClaimStore
    from holdfast.dedup.keys import KeySpec
    from holdfast.dedup.transactions import Transactions
    from holdfast.plugin.audit.settings import Audit
    from holdfast.plugin.engine.family import Family
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.engine.record.coroutines import Home
    from holdfast.plugin.handlers import Handling
    from holdfast.plugin.handling.handler_types import TakesValue, TakesValues
    from holdfast.plugin.handling.values import ValueSpec
    from holdfast.plugin.retrying.letter_limit import DeadLetterLimit
    from holdfast.runtime import Runtime

F = TypeVar("F", bound="Callable[..., Any]")
T = TypeVar("T")


class Holdfast(Hooks):
    """An app: one source, one store, handlers by topic.

    Args:
        source: delivers the records, for instance `holdfast.adapters.kafka.KafkaSource`.
        claims: the claim store, for instance `RedisClaims`. An explicit `None` runs without one: then a record may run
            again after a crash, a zombie is not fenced, and a record whose handler outlives the drain runs twice.
        settings: see `Settings`. None: `Settings()`.
        observers: see `holdfast.plugin.ports.Observer`; called in the thread that runs the app.
        dead_letters: takes the records that failed for good. None: the source's own broker.
        audit: writes events, from which a report says what was lost or repeated; see `Audit`. None: no events.
        runtime: the clock and the threads. None: those that the source brings, as sources of a simulated world do (see
            `holdfast.testing`), else those of this process.

    Raises:
        SettingError: an argument cannot work: another type, or settings that contradict the source.
    """

    @known_arguments(claims=A_STORE)
    def __init__(
        self,
        source: PartitionedSource | LeasedSource,
        *,
        claims: ClaimStore | None,
        settings: Settings | None = None,
        observers: Sequence[Observer] = (),
        dead_letters: DeadLetters | None = None,
        audit: Audit | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        super().__init__()
        check_parts(claims=claims, settings=settings, observers=observers)
        if not hasattr(source, "group"):
            raise SettingError("source", type(source).__name__, "give a source, such as KafkaSource({...})")
        brought: Runtime = getattr(source, "runtime", MACHINE)
        self._runtime = brought if runtime is None else runtime
        self._source = source
        self._settings = settings or Settings()
        self._store: ClaimStore = claims if claims is not None else NoClaims()
        self._observers = tuple(observers)
        self._letters = dead_letters
        self._audit = checked(audit)
        self._background: Background | None = None
        self._task: AppTask | None = None
        self._health, self._asked_for_health = HealthCheck(self._runtime), threading.Lock()
        self._stop_asked = self._leave_asked = False
        self._broker_retries = getattr(source, "retries", None) is not None
        self.parts.check_settings()
        if (check_claims := getattr(source, "check_claims", None)) is not None:
            check_claims(claims)
        if dead_letters is not None and transactions_each_s(source) is not None:
            raise SettingError(
                "dead_letters",
                type(dead_letters).__name__,
                "leave it out: with transactions a dead letter is written in the transaction of its record",
            )

    @overload
    def handler(
        self,
        topics: str | Sequence[str],
        *,
        value: None = None,
        batch: BatchOf | None = None,
        **others: Unpack[Handling],
    ) -> Callable[[F], F]: ...

    @overload
    def handler(
        self, topics: str | Sequence[str], *, value: ValueSpec[T], batch: None = None, **others: Unpack[Handling]
    ) -> TakesValue[T]: ...

    @overload
    def handler(
        self, topics: str | Sequence[str], *, value: ValueSpec[T], batch: BatchOf, **others: Unpack[Handling]
    ) -> TakesValues[T]: ...

    @known_arguments()
    def handler(
        self,
        topics: str | Sequence[str],
        *,
        value: ValueSpec[Any] | None = None,
        key: KeySpec | None = None,
        retry: Retry | None = None,
        dead_letter: str | None = None,
        dead_letter_limit: DeadLetterLimit | Literal["default"] | None = "default",
        letter_too_large: Literal["stop", "without_value"] = "stop",
        batch: BatchOf | None = None,
        name: str | None = None,
        scope: str | None = None,
        timeout_s: float | None = None,
        transaction: Transactions | None = None,
    ) -> Any:
        r"""Register a function for one topic, several, or patterns (`^orders\..*`). Returns the function unchanged.

        A plain function is called in a worker thread (with `workers=0` in the thread that runs the app), an `async def`
        in the event loop. A return says that the record is done, an exception that the attempt failed.

        Args:
            topics: names or patterns. A record goes to exactly one handler: an exact name wins over a pattern; of
                several patterns, the first registered wins.
            value: decodes the records' values: a type (JSON of a pydantic model, a msgspec Struct, a dataclass, a
                TypedDict, `dict`), `Avro(...)`, `Protobuf(...)`, `JsonSchema(...)`, a `Deserializer`, or a function of
                bytes. The function gets the value, the record, or both, as its parameters ask. A record that cannot be
                decoded becomes a dead letter at once. None: the function gets the record.
            key: the business key. Two records with the same key are the same piece of work. A field of a JSON value
                ("order_id", "order.id"), a function of the record, `record_key()`, or `header("name")`. None: a record
                is known by its position alone.
            retry: the attempts in this process. None: `Retry()`, three attempts; one attempt if the source lets the
                broker deliver failed records again. Such a source makes the attempts of `retry` first.
            dead_letter: the topic for records that failed for good. It must not lead back to this handler, neither
                through `topics` nor through the dead letters of the handler that reads it. None: such a record stops
                the app.
            dead_letter_limit: above this limit the handler is taken to be broken, and it pauses or the app stops. By
                default `DeadLetterLimit()`; with a source of leased records, which cannot be paused, the app stops.
                None: no limit.
            letter_too_large: applies if the dead letter topic refuses a letter's size, also compressed and with fewer
                headers. "stop": the app stops. "without_value": the letter names topic, partition and offset, and says
                that the value was left out; the record counts as dead-lettered.
            batch: call with a list of records instead of one.
            name: the handler's name in reports and dead letters. None: the function's qualified name with its module.
            scope: where a business key is unique. None: in the group and the topic. A name makes a key the same piece
                of work in every topic, group and program that uses this scope in the same namespace of the store.
            timeout_s: how long one call may run, instead of `Settings.handler_timeout_s`; `math.inf`: no limit.
            transaction: the app's own store, where that is in the database of the effects (`SqlPositions`), or its
                `store.sqlalchemy(Session)`. The handler gets `tx` as a keyword-only parameter: a connection of the
                database's driver (an async one for an `async def`), or a session, in a transaction in which the record,
                or the batch, is marked already. It is committed when the handler returns and undone when it raises:
                what the handler does by `tx` happens once. The handler neither commits nor keeps `tx`. A record whose
                `key` was handled before is skipped.

        Raises:
            SettingError: a topic or a name is taken, or a value cannot work.
            StateError: the app has begun.
        """
        if callable(topics):
            raise SettingError("topics", topics, "name the topics: @app.handler('orders')")

        leased, able = isinstance(self._source, LeasedSource), isinstance(self._source, RetryTopicsSource)
        transacting = transactions_each_s(self._source) is not None

        def register(call: F) -> F:
            self._check_not_begun("handlers")
            if dead_letter is not None and dead_letter in as_topics(topics):
                raise SettingError(
                    "dead_letter", dead_letter, "a dead letter may not go to a topic of the same handler"
                )
            if transaction is not None:
                check_transactions(transaction, self._store, is_async=is_coroutine(call), name=name_of_call(call))
            handler = new_handler(
                self._injection.bind(call, transaction=transaction is not None, outputs=transacting),
                value=value,
                name=name,
                topics=as_topics(topics),
                scope=scope,
                key=key,
                retry=retry or (Retry(attempts=1) if self._broker_retries else Retry()),
                dead_letter=dead_letter,
                limit=None if dead_letter is None else limit_for(dead_letter_limit, leased=leased),
                letter_too_large=letter_too_large,
                batch=batch,
                timeout_s=timeout_s,
                transaction=transaction,
                outputs=self._injection.takes_outputs(call),
                marks=self._store_to_mark(call) if transaction is None else None,
                origins=Origins(
                    group=self._source.group,
                    born_in=self._born_in,
                    keyless=self._settings.missing_key == "position",
                ),
            )
            self.parts.check_handler(handler)
            check_retry(handler.topics, handler.retry, self._source.group, able=able, letters=self._letters)
            self._add(handler)
            return call

        return register

    def _born_in(self, topic: str) -> str:
        return self._routes.retry_topics.born_in(topic)

    def _store_to_mark(self, call: Callable[..., Any]) -> Any:  # noqa: ANN401 - `Transactions`, or None
        """The store, where a handler that takes its call may mark records in a transaction of its own."""
        return self._store if hasattr(self._store, "mark") and self._injection.takes_call(call) else None

    def run(self, *, install_signal_handlers: bool = True) -> None:
        """Consume until SIGTERM, SIGINT or `stop()`; then fence, drain, commit and leave. A second signal cuts the
        drain short.

        Runs in the calling thread, which owns the client. If it is the main thread, signal handlers are installed, and
        the former ones put back at the end. With `install_signal_handlers=False`, call `stop()` instead.

        Raises:
            HandlerFailed: a record failed for good and has no dead letter.
            HandlerHung: a handler ran past its timeout and its grace, and has no dead letter, or
                `on_handler_timeout="stop"`.
            SettingError: there is no handler, or a handler's pattern matches its own dead letter topic.
            SourceError, StoreError: the broker or the store refuses, or does not answer at the start within
                `Settings.startup_timeout_s`.
            StateError: the app has run before.
            SystemExit: Ctrl-C while the app waited for the broker or the store at the start; the code is 130.
        """
        engine = self._made()
        with signals_handled(engine.stop, install=install_signal_handlers) as received:
            run_engine(engine, received)

    async def run_async(self, *, install_signal_handlers: bool = True) -> None:
        """Consume until SIGTERM, SIGINT, `stop()` or a cancellation, beside whatever else the event loop does.

        `async def` handlers run as tasks of the loop that awaits this, with its futures, pools, locks and context
        variables. Plain handlers run in threads. A thread waits for the broker and the store; the loop never does. A
        cancellation acts as `stop()` and is raised when the app has left; a second one cuts the drain short. If the
        application cancels the task of a handler, as `asyncio.run` does at its end, the app stops too, and the record
        counts as not handled.

        Args:
            install_signal_handlers: as in `run`. Use False where another part of the program, such as a web server,
                handles signals.

        Raises:
            asyncio.CancelledError: the call was cancelled.
            HoldfastError: as `run`.
        """
        with signals_handled(self._stop, install=install_signal_handlers) as received:
            await run_in_loop(
                lambda home: run_engine(self._made(home), received), self._stop_once, self._runtime, self._name
            )

    async def __aenter__(self) -> Self:
        """Start the app in the running event loop, as `run_async` without signal handlers, and return at once.

        The end of the body stops the app and waits until it has left. If the app fails, the body is cancelled, and its
        end raises the app's error. `stop()` ends the app but not the body: await `run_async` to end with the app.

        Raises:
            SettingError, StateError: as `run`, before the body begins.
        """
        if self._task is not None:
            raise StateError("an app runs once: make a new one")
        self.check()
        self._task = AppTask(lambda: self.run_async(install_signal_handlers=False), self._stop_once)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, where: object) -> None:
        """Stop, and wait until the app has left."""
        if self._task is not None:
            await self._task.leave(error)

    def start(self) -> None:
        """Consume in a thread of its own until `stop()`. Returns at once.

        For programs that need their main thread and have no event loop, as many web servers. If the app fails, the
        error is logged, and `stop(wait=True)` raises it. No signal handlers are installed. The thread is a daemon: if
        the main thread ends without `stop(wait=True)`, the app ends as in a crash.

        Raises:
            SettingError, StateError: as `run`, in the calling thread.
        """
        engine = self._made()
        self._background = Background(engine.run, self._runtime, self._name)
        self._background.warn_if_left(f"the app of group {self._source.group}")

    @property
    def _name(self) -> str:
        return f"holdfast-{self._source.group}"

    @property
    def parts(self) -> AppParts:
        """The app's parts, for tools. Any thread."""
        return AppParts(source=self._source, claims=self._store, settings=self._settings, routes=self._routes)

    def reconfigure(self, settings: Settings) -> None:
        """Replace the settings, before `run`. `holdfast run` sets those of the environment so.

        Raises:
            SettingError: the settings contradict the source, or a handler.
            StateError: the app has begun.
        """
        if self._engine is not None:
            raise StateError("change settings before run()")
        replace(self.parts, settings=settings).check_settings()
        self._settings = settings

    def check(self) -> None:
        """Check handlers and settings against each other, as `run` does first. Connects to nothing.

        Raises:
            SettingError: they cannot run together.
            StateError: the app has begun; an app runs once.
        """
        if self._engine is not None:
            raise StateError("an app runs once: make a new one")
        self.parts.check()

    def _made(self, home: Home | None = None) -> Engine:
        self.check()
        self.parts.time_handlers()
        wants_letters = self.parts.wants_letters
        letters = self._letters
        if letters is None and wants_letters:
            letters = self.parts.own_letters()
        engine = self._engine = Engine(
            store=self._store,
            routes=self._routes,
            settings=self.parts.fitted,
            letters=letters if wants_letters else None,
            observers=self._observers,
            audit=self._audit,
            group=self._source.group,
            runtime=self._runtime,
            family=self._family,
            home=home,
            around=self._around(self._source.group),
            letter_hooks=self._letter_hooks,
            resources=self._injection.resources(),
        )
        if self._stop_asked and not engine.parts.stopping.begun:
            engine.stop(leave=self._leave_asked)
        return engine

    def _family(self, parts: Parts, loop: Engine) -> Family:
        source = self._source
        return Leased(parts, loop, source) if isinstance(source, LeasedSource) else Partitioned(parts, loop, source)

    @property
    def claims(self) -> ClaimStore | None:
        """The app's store; None = it has none."""
        return None if isinstance(self._store, NoClaims) else self._store

    def snapshot(self) -> Snapshot:
        """The app's figures at one moment: its state, counts since the start, partitions with their lag.

        Any thread; before, during and after `run()`. The app's own thread takes it between two steps, so the figures
        fit together. If that thread waits for the broker or the store for more than a second, this returns the previous
        snapshot.
        """
        if self._engine is None:
            return Snapshot(state="new", group=self._source.group, at_ms=self._runtime.wall_ms())
        return self._engine.snapshots.snapshot()

    def health(self, *, stall_s: float = 300.0, silent_s: float = 60.0) -> Health:
        """Whether the app lives and is ready, and which partitions are stalled. For probes, every few seconds.

        Any thread but that of an event loop: it waits up to a second for the app's own thread, as `snapshot`. A stall
        shows by comparison with earlier calls: the first call finds none.

        Args:
            stall_s: how long a partition with lag may stay at one offset. Choose more than a handler and its retries
                take.
            silent_s: how long the app's loop may complete no step, because a call to the broker or the store is not
                answered or, with `workers=0`, a handler runs. During the start, at least as long as
                `Settings.startup_timeout_s` lets it wait.
        """
        with self._asked_for_health:  # two calls at once would get one snapshot, and the second would call it silence
            start_s = longest_start_s(self.parts.settings)
            return self._health.judge(self.snapshot(), stall_s=stall_s, silent_s=silent_s, start_s=start_s)

    def stop(self, *, leave: bool = False, wait: bool = False, why: str = "stop()") -> None:
        """Drain and leave; a second call cuts the drain short. Any thread. Returns at once; `run()` returns when the
        app has left.

        Args:
            leave: leave the group for good. Only a static member that will not be started again needs it: other members
                get its partitions at once, not after its session timeout.
            wait: for an app started by `start()`: return when it has left, and raise the error it failed with. Not from
                a handler: the app waits for handlers.
            why: the reason that the log gives.
        """
        self._stop(why, leave=leave)
        if wait and self._background is not None:
            self._background.join()

    def _stop_once(self, *, again: bool) -> None:
        if again or not self._stop_asked:
            self.stop()

    def _stop(self, why: str, *, leave: bool = False) -> None:
        self._leave_asked = self._leave_asked or leave
        self._stop_asked = True  # no Event: a signal handler must not take its lock
        if self._engine is not None:
            self._engine.stop(leave=leave, why=why)

    def subscribe(self, topics: Sequence[str]) -> None:
        """Change the subscription of a running app, to topics that its handlers match. Any thread.

        Raises:
            SettingError: no handler matches one of the names.
            StateError: the app does not run yet.
        """
        self._routes.check_subscription(topics)
        if self._engine is None:
            raise StateError("subscribe() changes a running app; before run(), handlers name their topics")
        self._engine.subscribe([*topics, *self._routes.retry_topics.steps])
