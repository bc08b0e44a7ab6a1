"""What a worker does with the entries it was given: start gate, handler, outcome. Decides nothing."""

from __future__ import annotations

import inspect
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import BatchFailed, DeadLetterError, Unretriable
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Sequence

    from holdfast.plugin.dead_letter import Letter
    from holdfast.plugin.handlers import Handler
    from holdfast.plugin.lanes import Entry, Lane
    from holdfast.plugin.ports import DeadLetters


class Outcome(Enum):
    """How an entry comes back."""

    OK = "ok"
    FAILED = "failed"
    NOT_STARTED = "not started"  #: fenced, or its session is lost, or one before it in its lane failed
    LETTER_SENT = "letter sent"
    LETTER_FAILED = "letter failed"


class Ended(NamedTuple):
    """One entry back from a worker."""

    entry: Entry
    outcome: Outcome
    error: Exception | None = None


def _call(handler: Handler, given: object) -> None:
    """Call a plain function. One that hides a coroutine (a lambda around an `async def`) has done nothing yet."""
    returned = handler.call(given)
    if returned is not None and inspect.iscoroutine(returned):
        returned.close()
        raise Unretriable(f"{handler.name} returned a coroutine that nobody awaits: register the `async def` itself")


def run_each(entries: deque[Entry], report: Callable[[Ended], None]) -> None:
    """Call the handler for one record after the other. What follows a failed one in its lane is not started.

    Takes from the left of `entries`; the loop may take back from the right meanwhile.
    """
    stopped: set[Lane] = set()
    while True:
        try:
            entry = entries.popleft()
        except IndexError:
            return
        if entry.lane in stopped or not entry.owner.enter(entry):
            stopped.add(entry.lane)
            report(Ended(entry, Outcome.NOT_STARTED))
            continue
        try:
            entry.check()
            _call(entry.handler, entry.record)
        except BaseException as error:  # noqa: BLE001 - a SystemExit in a handler must not end a worker in silence
            stopped.add(entry.lane)
            report(Ended(entry, Outcome.FAILED, _as_exception(error)))
        else:
            report(Ended(entry, Outcome.OK))


async def run_each_async(entries: Sequence[Entry], report: Callable[[Ended], None]) -> None:
    """The same for an `async def`."""
    stopped: set[Lane] = set()
    for entry in entries:
        if entry.lane in stopped or not entry.owner.enter(entry):
            stopped.add(entry.lane)
            report(Ended(entry, Outcome.NOT_STARTED))
            continue
        try:
            entry.check()
            await entry.handler.call(entry.record)
        except BaseException as error:  # noqa: BLE001 - a cancelled task must come back too
            stopped.add(entry.lane)
            report(Ended(entry, Outcome.FAILED, _as_exception(error)))
        else:
            report(Ended(entry, Outcome.OK))


def run_batch(entries: Sequence[Entry], report: Callable[[Ended], None]) -> None:
    """Call a batch handler once with all records that may start."""
    started = _enter_all(entries, report)
    if not started:
        return
    try:
        _call(started[0].handler, [entry.record for entry in started])
    except BaseException as error:  # noqa: BLE001 - as above
        _report_batch(started, report, error)
    else:
        _report_batch(started, report, None)


async def run_batch_async(entries: Sequence[Entry], report: Callable[[Ended], None]) -> None:
    """The same for an `async def`."""
    started = _enter_all(entries, report)
    if not started:
        return
    try:
        await started[0].handler.call([entry.record for entry in started])
    except BaseException as error:  # noqa: BLE001 - as above
        _report_batch(started, report, error)
    else:
        _report_batch(started, report, None)


def send_letter(
    entry: Entry, letter: Letter, letters: DeadLetters, timeout_s: float, report: Callable[[Ended], None]
) -> None:
    """Send a record that failed for good to its dead letter topic; the entry stays in hand meanwhile.

    The gate is asked again: who has lost the partition leaves the decision to the new owner.
    """
    if not entry.owner.enter(entry):
        report(Ended(entry, Outcome.NOT_STARTED))
        return
    try:
        letters.send(letter, Deadline(timeout_s, SYSTEM_CLOCK))
    except Exception as error:  # noqa: BLE001 - whatever it is, the record is not settled
        failure = error if isinstance(error, DeadLetterError) else DeadLetterError(f"{letter.topic}: {error!r}")
        if failure is not error:
            failure.__cause__ = error
        report(Ended(entry, Outcome.LETTER_FAILED, failure))
    else:
        report(Ended(entry, Outcome.LETTER_SENT))


def _enter_all(entries: Sequence[Entry], report: Callable[[Ended], None]) -> list[Entry]:
    started = []
    for entry in entries:
        if not entry.owner.enter(entry):
            report(Ended(entry, Outcome.NOT_STARTED))
        elif entry.error is not None:
            report(Ended(entry, Outcome.FAILED, entry.error))
        else:
            started.append(entry)
    return started


def _report_batch(entries: Sequence[Entry], report: Callable[[Ended], None], error: BaseException | None) -> None:
    partial = error.failures if isinstance(error, BatchFailed) else None
    if partial is not None and not (partial and partial.keys() <= set(range(len(entries)))):
        partial = None  # none named, or one that is not there (counted from 1, say): whoever is meant would be skipped
    for number, entry in enumerate(entries):
        if error is None or (partial is not None and number not in partial):
            report(Ended(entry, Outcome.OK))
        else:
            report(Ended(entry, Outcome.FAILED, _as_exception(error) if partial is None else partial[number]))


def _as_exception(error: BaseException) -> Exception:
    """Errors stay as they are; SystemExit, KeyboardInterrupt and cancellation fail the record for good."""
    if isinstance(error, Exception):
        return error
    failure = Unretriable(f"the handler raised {error!r}, which is no Exception; the record is not tried again")
    failure.__cause__ = error
    return failure
