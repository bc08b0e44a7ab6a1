"""Promises: assertions on the README's promises. Their messages show the events that broke one."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Literal

from holdfast.errors import KeyMissing
from holdfast.records import Partition, Record
from holdfast.testing.scripted.book import Call, place
from holdfast.testing.scripted.effects import effects_of, key_of, name_of, what_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from holdfast.dedup.keys import KeySpec
    from holdfast.plugin.handlers import Handler
    from holdfast.testing.scripted.book import Book
    from holdfast.testing.scripted.cluster import Cluster
    from holdfast.testing.scripted.effects import Effect
    from holdfast.testing.scripted.member import Member
    from holdfast.testing.scripted.story import Story

#: How many of a kind a message names.
_NAMED = 5


class Promises:
    """Each method raises AssertionError if its promise is broken. No method lets time pass: call `settle` first."""

    book: Book
    cluster: Cluster
    told: Story
    members: list[Member]

    def assert_once(
        self, done: Sequence[object] | None = None, by: KeySpec | None = None, *, except_in_hand: bool = False
    ) -> None:
        """Assert that no work was done twice.

        Args:
            done: the effects of your handlers: any list, best one of `world.effects`. By default calls of handlers that
                ended well.
            by: the field that makes two items the same work, such as "order_id". By default items are compared by their
                text, and calls by their handler's key, or else by the record's partition and offset.
            except_in_hand: allow a repetition of what a member had in hand when it crashed or was taken for dead.
                Promise P3 allows that, unless the sink refuses it.

        Raises:
            AssertionError: work was done twice; or there were records and no work was done.
        """
        __tracebackhide__ = True
        times: dict[tuple[str, str], list[Effect | Call]] = defaultdict(list)
        if done is None:
            for call in self.book.calls:
                if call.outcome == "done" and not call.replayed:
                    for work, record in zip(call.work, call.records, strict=True):
                        if not (except_in_hand and work in call.excused):
                            times[(work.scope, str(work)) if by is None else ("", key_of(record, by))].append(call)
        else:
            for effect in effects_of(done):
                call_of = effect.call
                if call_of is not None and (call_of.replayed or (except_in_hand and call_of.excused)):
                    continue
                times["", what_of(effect.item, by)].append(effect)
        again = {name: each for name, each in times.items() if len(each) > 1}
        what = "handled" if done is None else name_of(done)
        if again:
            lines = [f"  {name}: {', again '.join(map(_when, each))}" for (_, name), each in again.items()]
            said = f"{what} more than once: {_named([name for _, name in again])} (of {len(times)})"
            raise self.told.failure("\n".join([said, *_most(lines)]), _told_by(done, again.values()))
        if not times and not except_in_hand and any(self._records()):
            raise self.told.failure(
                f"{what}: nothing at all, though there are records; so nothing is shown by this test"
            )

    def assert_nothing_lost(self, done: Sequence[object] | None = None, by: KeySpec | None = None) -> None:
        """Assert that each record that was sent was handled, is a dead letter, or has the key of a record that was.

        Args:
            done: the effects of your handlers; each record must be among them. By default each record must have been in
                a call that ended well, which does not find a handler that returns before its work is done.
            by: the field that a record and an item of `done` have in common, such as "order_id".

        Raises:
            AssertionError: a record was lost, or was sent to a topic without a handler.
            TypeError: `done` without `by`.
        """
        __tracebackhide__ = True
        if done is not None and by is None:
            raise TypeError("say how a record is found in the list: assert_nothing_lost(charged, by='order_id')")
        handlers = self._handlers()
        filled = {partition.topic for partition, log in self.cluster.broker.logs.items() if log.offsets}
        unread = sorted(topic for topic in filled if handlers(topic) is None)
        if unread:
            raise self.told.failure(f"no member has a handler for {_named(unread)}: what was sent there is lost")
        found = None if done is None else {what_of(effect.item, by) for effect in effects_of(done)}
        lost: list[str] = []
        for handler, record in self._records():
            if self.book.lettered(record):
                continue
            if found is None or by is None:
                calls = self.book.of(self.book.work_of(handler, record))
                kept = any(call.outcome == "done" for call in calls)
                name = place(record)
            else:
                calls = [call for call in self.book.calls if any(place(each) == place(record) for each in call.records)]
                key = _key(record, by)
                kept, name = key in found, f"{key} ({place(record)})"
            if not kept:
                how = "; ".join(f"{call.member} {_outcome(call)}" for call in calls[-_NAMED:])
                lost.append(f"  {name}: {how or 'no handler was called with it'}")
        if lost:
            what = "not handled" if done is None else f"lost, since not in {name_of(done)}"
            said = f"{what}: {len(lost)} of {sum(1 for _ in self._records())} records"
            raise self.told.failure("\n".join([said, *_most(lost)]), {line.split()[0].rstrip(":") for line in lost})

    def assert_order(self, within: Literal["key", "partition"] = "key") -> None:
        """Assert that records of one message key (or of one partition) were handled one after the other, as sent.

        Raises:
            AssertionError: a record began before an earlier one of its key had ended.
        """
        __tracebackhide__ = True
        lanes: dict[tuple[Partition, bytes | None], list[tuple[Handler, Record]]] = defaultdict(list)
        for handler, record in self._records():
            if within == "partition" or record.key is not None:
                lanes[record.partition, record.key if within == "key" else None].append((handler, record))
        for lane in lanes.values():
            before: tuple[Record, Call] | None = None
            for handler, record in lane:
                calls = [each for each in self._own_calls(handler, record) if not each.replayed]
                first = calls[0] if calls else None
                if first is not None and before is not None and before[1] is not first:
                    earlier, call = before
                    if first.began_s < _end_of(call):
                        raise self.told.failure(
                            f"{place(record)} was handled before {place(earlier)}, which was sent before it, with "
                            f"the same {within}:\n  {place(record)}: {_when(first)}\n  {place(earlier)}: {_when(call)}",
                            {place(record), place(earlier)},
                        )
                # A call in a frozen process may end late, after another member's: the first end counts.
                well = min((call for call in calls if call.outcome == "done"), key=_end_of, default=None)
                last = well or (calls[-1] if calls else None)
                before = before if last is None else (record, last)

    def assert_committed(self, topic: str | None = None, number: int | None = None, offset: int | None = None) -> None:
        """Assert that all records are committed: of all topics, of one topic, or of one partition.

        Args:
            topic: None = all topics.
            number: of the partition; None = all partitions.
            offset: the committed offset of that partition must be this one.

        Raises:
            AssertionError: records are not committed, or another offset is.
        """
        __tracebackhide__ = True
        if topic is not None and number is not None and offset is not None:
            found = self.cluster.group.offset(Partition(topic, number))
            if found != offset:
                raise self.told.failure(
                    f"{topic}-{number}: committed is {found}, and not {offset}", {f"{topic}-{number}"}
                )
            return
        wanted = topic if number is None else f"{topic}-{number}"
        behind = [
            line
            for line in self.cluster.behind()
            if wanted is None or line.startswith(f"{wanted}:" if number is not None else f"{wanted}-")
        ]
        if behind:
            raise self.told.failure(
                "not all is committed: " + "; ".join(behind), [each.split(":")[0] for each in behind]
            )

    def assert_dead_lettered(self, *keys: object, by: KeySpec) -> None:
        """Assert that the dead letters are exactly these records.

        Args:
            keys: the values of `by` in the records: `assert_dead_lettered(17, by="order_id")`. None: no dead letters.
            by: the field of a record that names it.

        Raises:
            AssertionError: the dead letters are others.
        """
        __tracebackhide__ = True
        found = sorted({_key(letter.record, by) for letter in self.book.letters})
        if found != sorted(map(str, keys)):
            said = f"dead letters are {_named(found) or 'none'}, and not {_named(sorted(map(str, keys))) or 'none'}"
            raise self.told.failure(said, [place(letter.record) for letter in self.book.letters])

    # ---- inside
    def _records(self) -> Iterator[tuple[Handler, Record]]:
        """All records in topics that a member has a handler for, each with that handler."""
        handlers = self._handlers()
        for partition, log in sorted(self.cluster.broker.logs.items()):
            handler = handlers(partition.topic)
            if handler is None:
                continue
            for offset in log.offsets:
                stored = log.records[offset]
                yield handler, Record(partition, offset, stored.key, stored.value, stored.headers, -1, NO_OWNER)

    def _handlers(self) -> Callable[[str], Handler | None]:
        born_in = self.cluster.retry_topics
        routes = [member.app._routes for member in self.members]  # noqa: SLF001 - as members do
        return lambda topic: next((found for each in routes if (found := each.find(born_in.get(topic, topic)))), None)

    def _own_calls(self, handler: Handler, record: Record) -> list[Call]:
        calls = self.book.of(self.book.work_of(handler, record))
        return [call for call in calls if any(place(each) == place(record) for each in call.records)]


class _NoOwner:
    """The fence of a record that no member owns."""

    epoch, session, cancelled = 0, "", False

    def overdue(self, record: Record) -> bool:  # noqa: ARG002 - as of `Fence`
        """Always False: no timeout watches it."""
        return False


NO_OWNER = _NoOwner()


def _key(record: Record, by: KeySpec) -> str:
    try:
        return key_of(record, by)
    except KeyMissing:
        return f"without a key, at {place(record)}"


def _end_of(call: Call) -> float:
    return math.inf if call.ended_s is None else call.ended_s


def _when(one: Effect | Call) -> str:
    call = one if isinstance(one, Call) else one.call
    at_s = one.began_s if isinstance(one, Call) else one.at_s
    if call is None:
        return (
            "outside of a handler"
            if at_s >= 0
            else "at a time that is not known (world.effects() makes a list that knows)"
        )
    return f"at {at_s:.3f} s by {call.member} ({call.where}{'' if call.outcome == 'done' else ', ' + _outcome(call)})"


def _outcome(call: Call) -> str:
    return {"runs": "still has it", "done": "said that it was done", "cut off": "crashed in its midst"}.get(
        call.outcome, call.outcome
    )


def _told_by(done: Sequence[object] | None, groups: Iterable[Iterable[Effect | Call]]) -> set[str]:
    """Words of the story's lines about these effects or calls."""
    words = set()
    for one in chain.from_iterable(groups):
        call = one if isinstance(one, Call) else one.call
        words |= {place(record) for record in call.records} if call is not None else set()
        words |= set() if isinstance(one, Call) else {f"{name_of(done)}: {one.item!r}"}
    return words


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _most(lines: Sequence[str]) -> list[str]:
    more = [f"  and {len(lines) - 2 * _NAMED} more"] if len(lines) > 2 * _NAMED else []
    return [*lines[: 2 * _NAMED], *more]
