"""The ledger against the audit: two accounts of one story that know nothing of each other.

The audit hears what members tell by themselves; the ledger has what their handlers wrote. They agree, but for what a
process did in its last moment before it was killed: the audit may not have heard of that, and says *unknown*.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.harness.group.ledger import Where
from tests.harness.group.numbers import number_of_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.harness.group.outcome import Outcome

    #: Table -> rows, of all groups.
    Tables = Mapping[str, Iterable[Mapping[str, Any]]]

_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Account:
    """What the ledger has of one story, in short: a run of all stories has many."""

    group: str
    topics: frozenset[str]
    #: Handlers that ended well, by record: in processes that lived to tell; in those that were killed.
    told: Counter[Where]
    untold: Counter[Where]
    #: What a process that was killed had begun.
    begun_untold: frozenset[Where]
    #: The first to end it was killed.
    crashed: frozenset[Where]
    replayed: frozenset[Where]
    lost: int
    any_killed: bool

    @staticmethod
    def of(outcome: Outcome) -> Account:
        """Of its ledger."""
        ended = [each for each in outcome.ran if each.outcome == "end"]
        ended.sort(key=lambda each: each.end_ns or 0)
        first: dict[Where, int] = {}
        for each in ended:
            first.setdefault(each.where, each.pid)
        return Account(
            group=outcome.group,
            topics=frozenset(outcome.ends),
            told=Counter(each.where for each in ended if each.pid not in outcome.silenced),
            untold=Counter(each.where for each in ended if each.pid in outcome.silenced),
            begun_untold=frozenset(each.where for each in outcome.ran if each.pid in outcome.silenced),
            crashed=frozenset(where for where, pid in first.items() if pid in outcome.silenced),
            replayed=frozenset(outcome.replayed),
            lost=outcome.lost,
            any_killed=bool(outcome.silenced),
        )


def disagreements(account: Account, tables: Tables) -> list[str]:
    """In words; empty = both say the same."""
    mine = {
        name: [row for row in rows if row["group"] == account.group and row.get("topic") in (None, *account.topics)]
        for name, rows in tables.items()
    }
    if len(mine["summary"]) != 1:
        return [f"{len(mine['summary'])} summaries of {account.group}"]
    return [
        *_of_members(account, mine["members"]),
        *_of_counts(account, mine["coverage"]),
        *_of_repeats(account, mine["duplicates"]),
        *_of_gaps(account, mine["gaps"]),
    ]


def _of_members(account: Account, members: list[Mapping[str, Any]]) -> Iterable[str]:
    """Everybody has told everything who was not killed."""
    incomplete = [row for row in members if row["missing"] or row["dropped"]]
    if incomplete:
        yield f"events are missing: {incomplete}"
    killed = [row["member"] for row in members if row["ended"] == "killed"]
    if killed and not account.any_killed:
        yield f"nobody was killed, and the audit has {killed}"


def _of_counts(account: Account, coverage: list[Mapping[str, Any]]) -> Iterable[str]:
    """As many executions in each partition as the ledger has, less those that were not told."""
    told, untold = _by_partition(account.told), _by_partition(account.untold)
    handled = {_partition(row): row["handled"] for row in coverage}
    for each in sorted(told | untold):
        at_least, at_most, found = told[each], told[each] + untold[each], handled.get(each, 0)
        if not at_least <= found <= at_most:
            yield f"{each}: {found} executions, the ledger has {at_least} to {at_most}"
    for each, found in handled.items():
        if found and each not in told and each not in untold:
            yield f"{each}: {found} executions, the ledger has none"


def _of_repeats(account: Account, duplicates: list[Mapping[str, Any]]) -> Iterable[str]:
    """The same records, as often, for the right reason."""
    found: dict[Where, int] = {}
    causes: dict[Where, set[str]] = defaultdict(set)
    for row in duplicates:
        for where in _range(row):
            found[where] = row["executions"]
            causes[where].add(row["cause"])
    invented = [where for where in found if found[where] > account.told[where] + account.untold[where]]
    if invented:
        yield f"{len(invented)} repeats that the ledger has not: {_some(invented)}"
    missed = [where for where, times in account.told.items() if times > max(found.get(where, 1), 1)]
    if missed:
        yield f"{len(missed)} repeats that the audit has not: {_some(missed)}"
    for where, why in causes.items():
        may_be = {"hand-over", "redelivery"}
        if where in account.replayed:
            may_be = {*may_be, "reset"}
        elif where in account.crashed:  # it may have handed it over before it was killed
            may_be = {"crash", "hand-over"}
        if not why <= may_be:
            yield f"{where} was repeated by {sorted(may_be)}, the audit says {sorted(why)}"


def _of_gaps(account: Account, gaps: list[Mapping[str, Any]]) -> Iterable[str]:
    """Nothing is lost that is not; nothing is unknown but what a process that was killed had begun."""
    lost = [where for row in gaps if row["verdict"] == "lost" for where in _range(row)]
    done = [where for where in lost if account.told[where] + account.untold[where]]
    if done:
        yield f"{len(done)} are lost for the audit, and done in the ledger: {_some(done)}"
    elif lost and not account.lost:
        yield f"{len(lost)} are lost for the audit, and none in the ledger: {_some(lost)}"
    unknown = [where for row in gaps if row["verdict"] == "unknown" for where in _range(row)]
    unexplained = [where for where in unknown if where not in account.begun_untold]
    if unexplained:
        yield f"{len(unexplained)} are unknown that nobody killed had begun: {_some(unexplained)}"
    left = [where for row in gaps if row["verdict"] in ("pending", "left") for where in _range(row)]
    done = [where for where in left if account.told[where]]
    if done:
        yield f"{len(done)} are left over for the audit, and done in the ledger: {_some(done)}"


def _by_partition(counts: Counter[Where]) -> Counter[tuple[str, int]]:
    found: Counter[tuple[str, int]] = Counter()
    for where, times in counts.items():
        found[where.topic, where.partition] += times
    return found


def _partition(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["topic"], number_of_label(row["partition"])


def _range(row: Mapping[str, Any]) -> Iterable[Where]:
    return (Where(*_partition(row), offset) for offset in range(row["first"], row["next"]))


def _some(places: Iterable[Where]) -> str:
    every = sorted(places)
    return ", ".join(f"{each.topic}-{each.partition}@{each.offset}" for each in every[:_SHOWN])
