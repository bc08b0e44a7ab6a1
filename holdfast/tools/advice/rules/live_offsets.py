"""Rules over a live group: its offsets, its lag, and what the logs are about to drop. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.tools.advice.rules.finding import Effect, Rule, Seen, Severity
from holdfast.tools.advice.rules.watched import some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.tools.advice.rules.watched import Watched

#: Of a log: what lies so near its beginning may be dropped by the next segment that expires.
_NEAR = 0.1
_DAY_S = 86_400


def _growing(watched: Watched) -> Iterator[Seen]:
    if watched.apart_s <= 0 or not watched.now.members:
        return
    produced = handled = grown = lag = 0
    worst = []
    for before, now in watched.offsets():
        if before.lag is None or now.lag is None or before.end is None or now.end is None:
            continue
        produced += max(now.end - before.end, 0)
        handled += max((now.committed or 0) - (before.committed or 0), 0)
        grown, lag = grown + now.lag - before.lag, lag + now.lag
        worst.append((now.lag - before.lag, now.partition))
    # Between two commits lag grows by what is produced meanwhile, and falls at once with the second. Where nothing is
    # committed at all, another rule tells.
    if handled == 0 or grown <= produced / watched.apart_s * watched.commit_interval_s:
        return
    names = [f"{partition} (+{each:,})" for each, partition in sorted(worst, key=lambda pair: -pair[0]) if each > 0]
    yield Seen(
        some(names, 3),
        f"{lag - grown:,} to {lag:,} records behind within {watched.apart_s:.0f} s: "
        f"{produced / watched.apart_s:,.0f}/s are produced, {handled / watched.apart_s:,.0f}/s handled",
        "at this rate the group never catches up, and it comes nearer to the records that retention drops",
        "use more workers per member, more members (up to the number of partitions), or faster handlers; `holdfast "
        "lag` shows for each partition whether one key or one member is slow",
    )


def _standing(watched: Watched) -> Iterator[Seen]:
    if watched.apart_s < 2 * watched.commit_interval_s or any(view.rebalancing for view in watched.views):
        return
    owners = watched.now.owners
    still = [
        now
        for before, now in watched.offsets()
        if now.partition in owners and now.lag and before.lag and now.committed == before.committed
    ]
    if still:
        yield Seen(
            some(each.partition for each in still),
            f"{sum(each.lag or 0 for each in still):,} records behind, and the offset did not move within "
            f"{watched.apart_s:.0f} s",
            "a record that hangs, fails again and again, or takes very long holds up all records after it",
            "look at what the partition's member does (its log, its threads); a handler timeout and a dead letter "
            "topic let the other records continue",
        )


def _never_committed(watched: Watched) -> Iterator[Seen]:
    if watched.apart_s < 2 * watched.commit_interval_s:
        return
    owners = watched.now.owners
    never = [
        now.partition
        for before, now in watched.offsets()
        if now.partition in owners
        and before.committed is None
        and now.committed is None
        and not now.fault
        and (before.end or 0) > (before.first or 0)
    ]
    if never:
        yield Seen(
            some(never),
            "records and an owner, but no committed offset",
            "the next owner begins where its configuration says: at the end it skips unhandled records, "
            "at the beginning it handles everything again",
            "make sure that members commit; `holdfast reset` sets a starting offset",
        )


def _lost(watched: Watched) -> Iterator[Seen]:
    lost = [each for each in watched.now.partitions.values() if each.lost and each.exists]
    if lost:
        yield Seen(
            some(sorted(each.partition for each in lost)),
            f"retention dropped {sum(each.lost for each in lost):,} records before the group read them",
            "the group can never read them; its offset is outside the log, so auto.offset.reset decides where it "
            "continues",
            "keep records for longer than the group may be behind (retention.ms, retention.bytes; fileReservedTime)",
        )


def _near_lost(watched: Watched) -> Iterator[Seen]:
    near = [
        each
        for each in watched.now.partitions.values()
        if each.lag
        and each.first
        and each.end is not None
        and each.committed is not None
        and not each.lost
        and each.committed - each.first < _NEAR * (each.end - each.first)
    ]
    if near:
        yield Seen(
            some(sorted(each.partition for each in near)),
            f"{sum(each.lag or 0 for each in near):,} records behind, near the beginning of a log that has dropped "
            "records before",
            "retention may next drop records that the group has not read",
            "catch up, or raise the retention for now",
        )


def _beyond(watched: Watched) -> Iterator[Seen]:
    beyond = [each for each in watched.now.partitions.values() if each.beyond and each.exists]
    if beyond:
        yield Seen(
            some(sorted(each.partition for each in beyond)),
            some(f"offset {each.committed:,}, but the log ends at {each.end:,}" for each in beyond),
            "the topic was created again, or has lost records: until the log reaches this offset, auto.offset.reset "
            "decides where the group continues, and at the end it skips all new records",
            "stop the members, and set the offset: `holdfast reset --to earliest`",
        )


def _gone(watched: Watched) -> Iterator[Seen]:
    gone = sorted({each.partition.topic for each in watched.now.partitions.values() if not each.exists})
    if gone:
        yield Seen(
            some(gone),
            "the group has offsets there, but the topic or partition does not exist",
            "if it is created again, the group begins at an offset of the old one",
            "delete these offsets, or the group, if they are not needed",
        )


def _nobody(watched: Watched) -> Iterator[Seen]:
    now = watched.now
    lag = sum(each.lag or 0 for each in now.partitions.values())
    if not now.members and lag:
        yield Seen(
            "group",
            f"no member, and {lag:,} records to read",
            "no member reads them, and the first one that starts gets all of them at once",
            "start the group's members; if the group is not used any more, delete it",
        )


def _expiring(watched: Watched) -> Iterator[Seen]:
    now = watched.now
    if not watched.kafka or now.rebalancing or any(each.topics is None for each in now.members):
        return
    read = {topic for each in now.members for topic in each.topics or ()}
    had = {each.partition.topic for each in now.partitions.values() if each.committed is not None and each.exists}
    if not had - read:
        return
    after = (
        "after offsets.retention.minutes (7 days by default)"
        if now.offsets_retention_s is None
        else f"after {now.offsets_retention_s / _DAY_S:.3g} days"
    )
    since = "their last commit, since no member subscribes to the topic" if now.members else "the last member's leave"
    yield Seen(
        some(sorted(had - read)),
        "offsets that are not renewed",
        f"the broker deletes them {after}, counted from {since}; then auto.offset.reset decides, and the group skips "
        "or repeats everything",
        "start members before that, or save the offsets (`holdfast lag --json`) and set them again (`holdfast reset`)",
    )


RULES = (
    Rule(
        name="records-lost",
        severity=Severity.ERROR,
        effect=Effect.SKIPS,
        title="retention dropped records before the group read them",
        look=_lost,
    ),
    Rule(
        name="offset-beyond-log",
        severity=Severity.ERROR,
        effect=Effect.SKIPS,
        title="an offset beyond the end of the log",
        look=_beyond,
    ),
    Rule(
        name="partition-stands-still",
        severity=Severity.WARNING,
        effect=Effect.STANDSTILL,
        title="a partition with lag and an owner, and no progress for two commit intervals",
        look=_standing,
    ),
    Rule(
        name="lag-growing",
        severity=Severity.WARNING,
        effect=Effect.BACKLOG,
        title="lag that grows by more than is produced in one commit interval",
        look=_growing,
    ),
    Rule(
        name="records-nearly-lost",
        severity=Severity.WARNING,
        effect=Effect.SKIPS,
        title="unread records near the beginning of a log that has dropped records",
        look=_near_lost,
    ),
    Rule(
        name="never-committed",
        severity=Severity.WARNING,
        effect=Effect.SKIPS,
        title="a partition that a member reads, without a committed offset for two commit intervals",
        look=_never_committed,
    ),
    Rule(
        name="offsets-expiring",
        severity=Severity.WARNING,
        effect=Effect.SKIPS,
        title="Kafka: offsets that will expire, of a group without members or of topics that no member subscribes to",
        look=_expiring,
    ),
    Rule(
        name="no-members",
        severity=Severity.WARNING,
        effect=Effect.BACKLOG,
        title="a group with lag and without members",
        look=_nobody,
    ),
    Rule(
        name="topic-gone",
        severity=Severity.NOTE,
        effect=Effect.IGNORED,
        title="offsets of topics or partitions that no longer exist",
        look=_gone,
    ),
)
