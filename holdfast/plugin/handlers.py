"""Handlers and routes: which function gets which topic, and how it is called."""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from holdfast.dedup.keys import resolve_key
from holdfast.dedup.not_run import check_runs, is_coroutine
from holdfast.errors import SettingError
from holdfast.plugin.handling.outputs import producing
from holdfast.plugin.handling.parameters import bind
from holdfast.plugin.handling.transacting import Keys, marking, transacting
from holdfast.plugin.retrying.retry import Retry
from holdfast.plugin.retrying.retry_topics import NO_RETRY_TOPICS, RetryTopics
from holdfast.plugin.setting_names import check_number, known

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.dedup.keys import KeySpec
    from holdfast.dedup.transactions import Transactions
    from holdfast.plugin.handling.transacting import Origins
    from holdfast.plugin.handling.values import Reading
    from holdfast.plugin.retrying.letter_limit import DeadLetterLimit
    from holdfast.records import Record


class Kind(Enum):
    """How a handler is called. Each kind has its own queue and its own limit, so that none waits for another."""

    PLAIN = "plain"
    COROUTINE = "coroutine"
    BATCH = "batch"
    BATCH_COROUTINE = "batch coroutine"

    # Enum's own __hash__ is written in Python, and each record looks its kind up many times.
    __hash__ = object.__hash__

    @property
    def is_async(self) -> bool:
        """Whether it runs in the event loop."""
        return self is Kind.COROUTINE or self is Kind.BATCH_COROUTINE


@known
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOf:
    """Call the handler with a list of records: consecutive ones of one partition, also with `ordering="none"`.

    Raises:
        SettingError: a value that cannot work.
    """

    #: Records in one call, at most.
    records: int = 100
    #: Seconds that the first record of an incomplete batch waits for others. It does not wait if none can come: the
    #: process holds as many records as it may, or the next record of the partition belongs to another handler.
    wait_s: float = 0.05

    def __post_init__(self) -> None:
        check_number("records", self.records, 1, "use 1 or more", whole=True)
        check_number("wait_s", self.wait_s, 0, "use 0 or more seconds", endless=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """One registered function."""

    #: For logs, reports and dead letters.
    name: str
    #: The scope of its business keys, if the user has named one: a key is the same piece of work in all topics and
    #: groups with this scope. None: each group and topic has a scope of its own, so that order 17 and payment 17, or
    #: two groups that share a store, never hide each other's records.
    scope: str | None = None
    call: Callable[[Any], Any]
    #: Decodes the records' values before `call` gets them (`value=`). None: `call` gets them as they are.
    reading: Reading | None = None
    #: Exact names, and patterns (^...).
    topics: tuple[str, ...]
    key: Callable[[Record], str] | None = None
    retry: Retry = field(default_factory=Retry)
    dead_letter: str | None = None
    batch: BatchOf | None = None
    #: If the dead letter topic refuses a letter's size: the app stops, or the letter goes without the record's value.
    letter_too_large: Literal["stop", "without_value"] = "stop"
    #: How many dead letters are too many; None: no limit.
    limit: DeadLetterLimit | None = None
    #: Seconds that one call may run; None: no limit.
    timeout_s: float | None = None
    #: `call` runs in transactions of this store, in which its records are marked. None: they are marked afterwards.
    transaction: Transactions | None = None
    #: What `call` sends goes into a transaction of the source (`Outputs`).
    outputs: bool = False
    #: `call` may mark its records in a transaction of its own, in the database of this store.
    marks: Transactions | None = None
    #: Where a key of a handler with `transaction` is unique, unless `scope` is named.
    origins: Origins | None = None

    #: Whether `call` is an `async def`.
    is_async: bool = field(init=False)
    #: Found from `call` and `batch`.
    kind: Kind = field(init=False)

    def scope_of(self, group: str, topic: str) -> str:
        """The scope of a key in a record whose origin is this topic."""
        return self.scope or f"{group}/{topic}"

    def __post_init__(self) -> None:
        _check_types(self)
        _takes_one(self)
        is_async = is_coroutine(self.call)
        object.__setattr__(self, "is_async", is_async)
        kinds = (Kind.PLAIN, Kind.COROUTINE) if self.batch is None else (Kind.BATCH, Kind.BATCH_COROUTINE)
        object.__setattr__(self, "kind", kinds[is_async])


class Handling(TypedDict, total=False):
    """The other arguments of `Holdfast.handler`, for its overloads."""

    key: KeySpec | None
    retry: Retry | None
    dead_letter: str | None
    dead_letter_limit: DeadLetterLimit | Literal["default"] | None
    letter_too_large: Literal["stop", "without_value"]
    name: str | None
    scope: str | None
    timeout_s: float | None
    transaction: Transactions | None


def as_topics(topics: str | Sequence[str]) -> tuple[str, ...]:
    """One topic or several, as a tuple. Raises SettingError: it is neither."""
    if isinstance(topics, str):
        return (topics,)
    try:
        return tuple(topics)
    except TypeError:
        raise SettingError("topics", topics, "name a topic, or several") from None


def new_handler(
    call: Callable[..., Any],
    *,
    value: object,
    name: str | None,
    key: KeySpec | None,
    transaction: Transactions | None,
    **others: Any,  # noqa: ANN401 - those of `Handler`
) -> Handler:
    """Make a `Handler` from the user's function. Raises SettingError, as `Holdfast.handler`."""
    own = getattr(call, "__qualname__", None)
    if not name and own is None:
        raise SettingError("name", name, f"{call!r} has none of its own: give it name=...")
    name = name or f"{call.__module__}.{own}"
    resolved = None if key is None else resolve_key(key)
    others["transaction"] = transaction
    if value is None:
        return _wrapped(Handler(name=name, call=call, key=resolved, **others))
    _runs(call, name)
    if isinstance(key, str) and not getattr(value, "reads_json", True):
        raise SettingError(
            "key", key, f"it names a field of JSON, and {value!r} reads none: key=record_key(), header(...)"
        )
    bound = bind(call, value, name=name, batch=others["batch"] is not None)
    return _wrapped(Handler(name=name, call=bound.call, reading=bound.reading, key=resolved, **others))


def _wrapped(handler: Handler) -> Handler:
    if handler.outputs:
        handler = replace(handler, call=producing(handler.call))
    if handler.transaction is None:
        return handler if handler.marks is None else replace(handler, call=marking(handler.call))
    # Its keys are claimed in its transactions, and not before.
    return replace(handler, call=transacting(handler.call, handler.transaction, _keys_of(handler)), key=None)


def _keys_of(handler: Handler) -> Keys | None:
    key, origins = handler.key, handler.origins
    if key is None or origins is None:
        return None
    return Keys(key, lambda topic: handler.scope_of(origins.group, topic), origins)


def _check_types(handler: Handler) -> None:
    """Raises SettingError: a value of a wrong type, which would otherwise show only with the first record."""
    if handler.timeout_s is not None:
        remedy = "use a value above 0; math.inf for a handler without one"
        check_number("timeout_s", handler.timeout_s, math.ulp(0.0), remedy, endless=True)
    for topic in handler.topics:
        if not _is_text(topic):
            raise SettingError("topics", topic, "name topics, or patterns (^...)")
    for name, value in (("dead_letter", handler.dead_letter), ("scope", handler.scope)):
        if value is not None and not _is_text(value):
            raise SettingError(name, value, f"name {'a topic' if name == 'dead_letter' else 'it'}, or leave it out")
    if handler.letter_too_large not in {"stop", "without_value"}:
        raise SettingError("letter_too_large", handler.letter_too_large, 'use "stop" or "without_value"')
    if not isinstance(handler.retry, Retry):
        raise SettingError("retry", handler.retry, f"use Retry(attempts={handler.retry!r})")
    if not isinstance(handler.batch, BatchOf | None):
        raise SettingError("batch", handler.batch, f"use BatchOf(records={handler.batch!r})")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _takes_one(handler: Handler) -> None:
    """Raises SettingError: a call with one argument cannot work, or would run nothing."""
    call, what = handler.call, "the list of records" if handler.batch else "the record"
    _runs(call, handler.name)
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return
    try:
        signature.bind(None)
    except TypeError:
        wanted = f"{handler.name}{signature}"
        remedy = f"a handler is called with one argument, {what}"
        if any(each.kind is each.KEYWORD_ONLY for each in signature.parameters.values()):
            remedy += ", and resources as keyword-only ones: register them above it, with @app.resource"
            if "tx" in signature.parameters:
                remedy += "; for a transaction of the store say transaction=store"
        raise SettingError("handler", wanted, remedy) from None


def _runs(call: Callable[..., Any], name: str) -> None:
    """Raises SettingError: a call would run nothing, as a generator function's."""
    if not callable(call):
        raise SettingError("handler", call, "register a function of one parameter, the record")
    check_runs("handler", call, name)


class Routes:
    """Topic -> handler. An exact name wins over a pattern; of several patterns the first registered wins."""

    def __init__(self) -> None:
        self._handlers: list[Handler] = []
        self._patterns: list[tuple[re.Pattern[str], Handler]] = []
        self._by_topic: dict[str, Handler] = {}
        self._found: dict[str, Handler | None] = {}
        #: Where failed records go to be tried later; empty before `plan_retries`.
        self.retry_topics = NO_RETRY_TOPICS

    @property
    def handlers(self) -> Sequence[Handler]:
        """In the order of registration."""
        return self._handlers

    @property
    def topics(self) -> list[str]:
        """The names and patterns to subscribe to."""
        return [topic for handler in self._handlers for topic in handler.topics]

    def add(self, handler: Handler) -> None:
        """Register. Raises SettingError for a doubled name or topic and for a pattern that does not compile."""
        if any(handler.name == other.name for other in self._handlers):
            raise SettingError(
                "name", handler.name, "two handlers of one app need two names: give one of them name=... explicitly"
            )
        if not handler.topics:
            raise SettingError("topics", handler.topics, "name at least one topic or pattern (^...)")
        for topic in handler.topics:
            if topic in self.topics:
                raise SettingError("topics", topic, "this topic has a handler already: a record goes to one handler")
        compiled = []
        for topic in handler.topics:
            if topic.startswith("^"):
                try:
                    compiled.append((re.compile(topic), handler))
                except re.error as error:
                    raise SettingError("topics", topic, f"the pattern does not compile: {error}") from error
        self._handlers.append(handler)
        self._patterns.extend(compiled)
        self._by_topic.update({topic: handler for topic in handler.topics if not topic.startswith("^")})
        self._found.clear()

    def change(self, changed: Callable[[Handler], Handler]) -> None:
        """Replace each handler by `changed(handler)`. Before `run`."""
        handlers = self._handlers
        self._handlers, self._patterns, self._by_topic = [], [], {}
        for handler in handlers:
            self.add(changed(handler))

    def check_subscription(self, topics: Sequence[str]) -> None:
        """Raises SettingError: no handler matches one of these names or patterns."""
        known = set(self.topics)
        for topic in topics:
            if topic not in known and (topic.startswith("^") or self.find(topic) is None):
                raise SettingError("topics", topic, "no handler matches it: register one before run()")

    def plan_retries(self, group: str) -> None:
        """Name the retry topics, once all handlers are registered. Raises SettingError: a name is taken."""
        letters = [handler.dead_letter for handler in self._handlers if handler.dead_letter]
        each = [(handler.topics, handler.retry) for handler in self._handlers]
        self.retry_topics = RetryTopics.of(each, group, [*self.topics, *letters])

    @property
    def targets(self) -> list[str]:
        """The topics that this app writes to: dead letter topics and retry topics."""
        return sorted(self.letters.union(self.retry_topics.steps))

    @property
    def letters(self) -> set[str]:
        """The dead letter topics."""
        return {handler.dead_letter for handler in self._handlers if handler.dead_letter}

    @property
    def origins(self) -> dict[str, set[str]]:
        """Each topic that this app writes to -> the topics whose records go there. Patterns are left out: the topics
        that they match are not known here."""
        found: dict[str, set[str]] = {topic: set() for topic in self.targets}
        for handler in self._handlers:
            if handler.dead_letter:
                found[handler.dead_letter].update(topic for topic in handler.topics if not topic.startswith("^"))
        for topic, step in self.retry_topics.steps.items():
            found[topic].add(step.born_in)
        return found

    @property
    def delays(self) -> dict[str, float]:
        """Each retry topic -> the seconds that a record waits in it."""
        return {topic: step.delay_s for topic, step in self.retry_topics.steps.items()}

    def check_letters(self) -> None:
        """Raises SettingError: a handler's dead letters come back to it, by its own pattern or through other handlers,
        and would fail again for ever. Called once all handlers are registered: a later one may read that topic.
        """
        for handler in self._handlers:
            way = [handler]
            while (receiver := self._receiver(way[-1])) is not None and receiver not in way:
                way.append(receiver)
            if receiver is not handler:  # a circle of other handlers is reported when their turn comes
                continue
            last, matching = way[-1], f"{' or '.join(handler.topics)} matches that topic"
            raise SettingError(
                "dead_letter",
                last.dead_letter,
                f"{handler.name} would get its own dead letters back, since {matching}: name one that it does not "
                "match (or register a handler for that topic)"
                if last is handler
                else f"a record on which {' and '.join(each.name for each in way)} fail would go round for ever, since "
                f"{matching}: let {last.name} name one that none of them gets",
            )

    def _receiver(self, handler: Handler) -> Handler | None:
        """The handler that reads its dead letter topic. No pattern matches RocketMQ's own topics (%DLQ%...)."""
        topic = handler.dead_letter
        return None if topic is None or topic.startswith("%") else self.find(topic)

    def find(self, topic: str) -> Handler | None:
        """The topic's handler, or None."""
        try:
            return self._found[topic]
        except KeyError:
            found = self._by_topic.get(topic)
            if found is None:
                found = next((handler for pattern, handler in self._patterns if pattern.search(topic)), None)
            self._found[topic] = found
            return found
