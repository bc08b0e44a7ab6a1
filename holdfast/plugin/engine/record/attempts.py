"""Attempts: a worker takes its entries through the start gate (`Ownership.enter`), handler and
outcome. Decides nothing."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import Enum
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import BatchFailed, DeadLetterError, HandlerError, Unretriable
from holdfast.plugin.engine.record.calling import call_async, call_plain, check_returned
from holdfast.plugin.engine.record.coroutines import first_step, in_own_context
from holdfast.plugin.handling.transacting import NotHandled
from holdfast.plugin.retrying.failures import words_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from holdfast.plugin.engine.record.call import Call
    from holdfast.plugin.engine.record.calling import Around
    from holdfast.plugin.engine.record.entry import Entry, Lane
    from holdfast.plugin.ports import DeadLetters
    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.records import Record
    from holdfast.timing import Deadline


class Outcome(Enum):
    """How an entry comes back."""

    OK = "ok"
    FAILED = "failed"
    #: Fenced, or its session is lost, or one before it in its lane failed; or Ctrl-C has broken it off.
    NOT_STARTED = "not started"
    LETTER_SENT = "letter sent"
    LETTER_FAILED = "letter failed"


class Ended(NamedTuple):
    """One entry back from a worker; a run whose records did not all end well with how each of them ended.

    An error of one that has not started is StoreUnavailable or FormerOwner: its transaction could not begin, or was
    undone.
    """

    entry: Entry
    outcome: Outcome
    error: Exception | None = None
    #: The end of each record of a run, from the first that it had when it was taken.
    each: Sequence[tuple[Outcome, Exception | None]] = ()


_OK: tuple[Outcome, None] = (Outcome.OK, None)
_NOT_STARTED: tuple[Outcome, None] = (Outcome.NOT_STARTED, None)


def run_each(call: Call, report: Callable[[Ended], None]) -> None:
    """Call the handler for one record after the other. What follows a failed one in its lane is not started.

    Takes from the left of `call.entries`; the loop may take back from the right meanwhile.
    """
    entries, around, times = call.entries, call.around, 0
    stopped: set[Lane] = set()
    while True:
        try:
            entry = entries.popleft()
        except IndexError:
            call.times = times
            if call.struck is not None:
                raise call.struck from None
            return
        if entry.count > 1 and entry.lane not in stopped and call.struck is None:
            call.current = entry
            ended = _run(entry, call)
            times += entry.started
        elif entry.lane in stopped or call.struck is not None or not entry.owner.enter(entry):
            ended = Ended(entry, Outcome.NOT_STARTED)
        else:
            call.current = entry
            times += 1
            try:
                entry.check()
                if entry.handler.reading is not None:
                    entry.handler.reading.read(entry.record)
                call_plain(entry.handler, entry.record) if around is None else around.call((entry,), entry.record)
            except BaseException as error:  # noqa: BLE001 - a SystemExit in a handler must not end a worker in silence
                ended = Ended(entry, *_verdict(call, error))
            else:
                ended = Ended(entry, Outcome.OK)
        if ended.outcome is not Outcome.OK:
            stopped.add(entry.lane)
        call.current = None
        report(ended)


def _verdict(call: Call, error: BaseException) -> tuple[Outcome, Exception | None]:
    """The meaning of a handler's error for its record. Nothing, if it is Ctrl-C: Python raises it in the first thread
    alone, where handlers run with `workers=0`, or in the application's event loop. Raised again when all records of the
    call are back, it ends the app. And nothing, if the application cancels the handler's task, whatever the handler
    makes of that: the app is to leave, and others get the record."""
    if isinstance(error, NotHandled):
        return Outcome.NOT_STARTED, error.due_to
    if call.home is not None and (call.uprooted(error) or isinstance(error, KeyboardInterrupt)):
        call.home.cancelled()
        if isinstance(error, KeyboardInterrupt):
            call.struck = error
        return _NOT_STARTED
    if call.inline and isinstance(error, KeyboardInterrupt):
        call.struck = error
        return _NOT_STARTED
    if isinstance(error, asyncio.CancelledError) and not call.cancelled:
        return Outcome.FAILED, _inner_cancelled(error)
    return Outcome.FAILED, _as_exception(error)


def _run(run: Entry, call: Call) -> Ended:
    """Call the handler for the records of a run. The loop may take back from the right of `run.todo` meanwhile."""
    take, enter, handler = run.todo.popleft, run.owner.enter, run.handler
    reading, around, handle = handler.reading, call.around, handler.call
    while True:
        try:
            record = take()
        except IndexError:
            return Ended(run, Outcome.OK)
        if not enter(run):
            return _stopped(run, Outcome.NOT_STARTED, None)
        try:
            if reading is not None:
                reading.read(record)
            if around is not None:
                around.call((run,), record)
            elif (returned := handle(record)) is not None:
                check_returned(handler, returned)
        except BaseException as error:  # noqa: BLE001 - as in run_each
            return _stopped(run, *_verdict(call, error))
        run.ended += 1


def _stopped(run: Entry, outcome: Outcome, error: Exception | None) -> Ended:
    """One of its records did not end well, or was not started; what follows it is not started."""
    left = 0
    with suppress(IndexError):  # the loop may take some of them back at the same time: each is taken by one of us
        while True:
            run.todo.popleft()
            left += 1
    return Ended(run, outcome, error, [_OK] * run.ended + [(outcome, error)] + [_NOT_STARTED] * left)


async def run_each_async(call: Call, report: Callable[[Ended], None]) -> None:
    """Run each record by an `async def`, one after the other, as `run_each` does. The loop takes back what waits behind
    one that waits. Nothing starts after this task was cancelled, by holdfast or by the application.
    """
    entries = call.entries
    stopped: set[Lane] = set()
    alone = len(entries) == 1 and entries[0].count == 1
    while True:
        try:
            entry = entries.popleft()
        except IndexError:
            break
        if entry.lane in stopped or call.cancelled or (entry.count == 1 and not entry.owner.enter(entry)):
            ended = Ended(entry, Outcome.NOT_STARTED)
        elif entry.count > 1:
            call.current = entry
            ended = await _run_async(entry, call)
            call.times += entry.started
        else:
            call.current = entry
            call.times += 1
            try:
                entry.check()
                coroutine = _coroutine(entry, entry.record, call.around)
                check_returned(entry.handler, await (coroutine if alone else in_own_context(coroutine)))
            except BaseException as error:  # noqa: BLE001 - a cancelled task must come back too
                ended = Ended(entry, *_verdict(call, error))
            else:
                ended = Ended(entry, Outcome.OK)
        if ended.outcome is not Outcome.OK:
            stopped.add(entry.lane)
        call.current = None
        report(ended)
    if call.struck is not None:
        raise call.struck


async def _run_async(run: Entry, call: Call) -> Ended:
    """Await the handler for the records of a run. The loop may take back from the right of `run.todo` meanwhile."""
    todo, enter, around, handler = run.todo, run.owner.enter, call.around, run.handler
    while True:
        try:
            record = todo.popleft()
        except IndexError:
            return Ended(run, Outcome.OK)
        if call.cancelled or not enter(run):
            return _stopped(run, Outcome.NOT_STARTED, None)
        try:
            rest, returned = first_step(_coroutine(run, record, around))
            if rest is not None:
                returned = await rest
            if returned is not None:
                check_returned(handler, returned)
        except BaseException as error:  # noqa: BLE001 - as above
            return _stopped(run, *_verdict(call, error))
        run.ended += 1


def _coroutine(entry: Entry, record: Record, around: Around | None) -> Coroutine[Any, Any, object]:
    if around is None and entry.handler.reading is None:
        called = entry.handler.call(record)
        if type(called) is CoroutineType:
            return called
        return _awaiting(called)  # another thing that can be awaited
    return _handle(entry, record, around)


async def _awaiting(called: Awaitable[object]) -> object:
    return await called


async def _handle(entry: Entry, record: Record, around: Around | None) -> None:
    handler = entry.handler
    if handler.reading is not None:
        await handler.reading.read_async(record)
    if around is None:
        await call_async(handler, record)
    else:
        await around.call_async((entry,), record)


def run_batch(call: Call, report: Callable[[Ended], None]) -> None:
    """Call a batch handler once with all records that may start, and can be decoded."""
    call.current = started = _enter_all(call, report)
    if not started:
        return
    call.times, handler, records = 1, started[0].handler, _records(started)
    undecoded: Mapping[int, Exception] = {}
    try:
        if handler.reading is not None:
            undecoded = handler.reading.read_all(records)
        if given := _without(records, undecoded):
            call_plain(handler, given) if call.around is None else call.around.call(started, given)
    except BaseException as error:  # noqa: BLE001 - as above
        _report_batch(call, started, report, error, undecoded)
    else:
        _report_batch(call, started, report, None, undecoded)


async def run_batch_async(call: Call, report: Callable[[Ended], None]) -> None:
    """Run a batch by an `async def`."""
    call.current = started = _enter_all(call, report)
    if not started:
        return
    call.times, handler, records = 1, started[0].handler, _records(started)
    undecoded: Mapping[int, Exception] = {}
    try:
        if handler.reading is not None:
            undecoded = await handler.reading.read_all_async(records)
        if given := _without(records, undecoded):
            if call.around is None:
                await call_async(handler, given)
            else:
                await call.around.call_async(started, given)
    except BaseException as error:  # noqa: BLE001 - as above
        _report_batch(call, started, report, error, undecoded)
    else:
        _report_batch(call, started, report, None, undecoded)


def report_not_started(call: Call, report: Callable[[Ended], None]) -> None:
    """Report that no entry of a call has started."""
    for entry in call.entries:
        report(Ended(entry, Outcome.NOT_STARTED, None, [_NOT_STARTED] * entry.count if entry.handler.batch else ()))


def send_letter(
    entry: Entry, letter: Letter, letters: DeadLetters, deadline: Deadline, report: Callable[[Ended], None]
) -> None:
    """Send a record that failed for good to its dead letter topic; the entry stays in hand meanwhile.

    The gate is asked again: who has lost the partition leaves the decision to the new owner. Not so for a record whose
    handler was given up (it counts as started still): its new owner waits for us, since that handler may still run.
    """
    if not (entry.started and entry.owner.still_ours(entry.record.offset)) and not entry.owner.enter(entry):
        report(Ended(entry, Outcome.NOT_STARTED))
        return
    try:
        letters.send(letter, deadline)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the record is not settled, and has to come back
        said = words_of(error, repr)
        failure = error if isinstance(error, DeadLetterError) else DeadLetterError(f"{letter.topic}: {said}")
        if failure is not error:
            failure.__cause__ = error
        report(Ended(entry, Outcome.LETTER_FAILED, failure))
    else:
        report(Ended(entry, Outcome.LETTER_SENT))


def _records(entries: Sequence[Entry]) -> list[Record]:
    return [record for entry in entries for record in entry.records]


def _without(records: list[Record], undecoded: Mapping[int, Exception]) -> list[Record]:
    return [record for at, record in enumerate(records) if at not in undecoded] if undecoded else records


def _enter_all(call: Call, report: Callable[[Ended], None]) -> list[Entry]:
    """The entries that start; all are of one lane, and so of one owner."""
    if not call.entries[0].owner.enter_all(call.entries):
        report_not_started(call, report)
        return []
    started = []
    for entry in call.entries:
        if entry.error is not None:
            report(Ended(entry, Outcome.FAILED, entry.error))
        else:
            started.append(entry)
    return started


def _report_batch(
    call: Call,
    entries: Sequence[Entry],
    report: Callable[[Ended], None],
    error: BaseException | None,
    undecoded: Mapping[int, Exception],
) -> None:
    """`undecoded`: by their numbers, records that the handler was not given."""
    call.current = None
    if error is None and not undecoded:
        for entry in entries:
            entry.ended = entry.count
            report(Ended(entry, Outcome.OK))
        return
    outcome, failure = _OK if error is None else _verdict(call, error)
    if outcome is Outcome.NOT_STARTED:
        for entry in entries:
            report(Ended(entry, Outcome.NOT_STARTED, failure, [(outcome, failure)] * entry.count))
        if call.struck is not None:
            raise call.struck
        return
    given = [at for at in range(sum(entry.count for entry in entries)) if at not in undecoded]
    failures = {**undecoded, **_failures(failure, given)}
    # In a transaction all of them are undone, and so is what they have sent: those that are not to blame run again.
    handler = entries[0].handler
    undone = handler.transaction is not None or handler.outputs or getattr(error, "undone", False)
    others = _NOT_STARTED if error is not None and undone else _OK
    number = 0
    for entry in entries:
        each = [
            (Outcome.FAILED, failures[at]) if at in failures else others for at in range(number, number + entry.count)
        ]
        number += entry.count
        worst = next((one for one in each if one[0] is Outcome.FAILED), each[0])
        report(Ended(entry, worst[0], worst[1], each))


def _failures(error: Exception | None, given: Sequence[int]) -> dict[int, Exception]:
    """Which records of a batch its handler has failed, of those that it was given."""
    if error is None:
        return {}
    if isinstance(error, BatchFailed) and error.fits(len(given)):
        return {given[at]: _as_exception(failure) for at, failure in error.failures.items()}
    return dict.fromkeys(given, error.fails_all(len(given)) if isinstance(error, BatchFailed) else error)


def _inner_cancelled(error: BaseException) -> Exception:
    """The handler itself was not cancelled: what it awaits was, and another attempt may end well."""
    failure = HandlerError("the handler raised CancelledError: a task that it waited for was cancelled")
    failure.__cause__ = error
    return failure


def _as_exception(error: object) -> Exception:
    """Errors stay as they are; SystemExit, KeyboardInterrupt and cancellation fail the record for good. What else a
    `BatchFailed` has for a record is no error, but the record has failed."""
    if isinstance(error, Exception):
        return error
    if not isinstance(error, BaseException):
        return TypeError(f"BatchFailed has a {type(error).__name__} for this record: give it an exception")
    failure = Unretriable(
        f"the handler raised {words_of(error, repr)}, which is no Exception; the record is not tried again"
    )
    failure.__cause__ = error
    return failure
