"""A group's lag as rows for people and values for programs, and how fast it changes. Pure."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.records import Partition
    from holdfast.tools.advice.group_view import GroupView, MemberView, PartitionView

#: Rates are over so long: members commit every 5 s by default, RocketMQ's own clients too.
_WINDOW_S = 30.0
#: Catching up later than that is not worth a number.
_NEVER_S = 30 * 86_400.0


class Rate(NamedTuple):
    """How fast a partition is read and written. None = not known: it takes two looks at an offset."""

    consumed_s: float | None
    produced_s: float | None

    def catch_up_s(self, lag: int | None) -> float | None:
        """Until everything is read, if both go on like that. None = nobody knows, infinite = never."""
        if lag is None or self.consumed_s is None or self.produced_s is None:
            return None
        if lag == 0:
            return 0.0
        gain_s = self.consumed_s - self.produced_s
        return lag / gain_s if gain_s > 0 and lag / gain_s < _NEVER_S else math.inf


UNKNOWN = Rate(None, None)


class Rates:
    """Rates of change over the last looks."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, Mapping[Partition, PartitionView]]] = deque()
        #: When an offset or a log's end fell: what was before is another story.
        self._since: dict[Partition, float] = {}

    def add(self, now_s: float, view: GroupView) -> None:
        """A look, in the order of time."""
        if self._looks:
            for partition, was in self._looks[-1][1].items():
                is_ = view.partitions.get(partition)
                if is_ is None or _fell(was.at, is_.at) or _fell(was.end, is_.end):
                    self._since[partition] = now_s
        self._looks.append((now_s, view.partitions))
        # One that is older than the window stays, so that a window is never shorter than it says.
        while len(self._looks) > 2 and self._looks[1][0] <= now_s - _WINDOW_S:
            self._looks.popleft()

    def of(self, partition: Partition) -> Rate:
        """Over the window, or as long as there is something to compare with."""
        now_s, newest = self._looks[-1]
        return Rate(
            self._per_s(partition, now_s, None if partition not in newest else newest[partition].at, "at"),
            self._per_s(partition, now_s, None if partition not in newest else newest[partition].end, "end"),
        )

    def _per_s(self, partition: Partition, now_s: float, value: int | None, field: str) -> float | None:
        if value is None:
            return None
        for at_s, partitions in self._looks:
            if at_s >= now_s:
                return None
            if at_s < self._since.get(partition, at_s) or partition not in partitions:
                continue
            before: int | None = getattr(partitions[partition], field)
            if before is not None:
                return (value - before) / (now_s - at_s)
        return None


def _fell(before: int | None, now: int | None) -> bool:
    return before is not None and (now is None or now < before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One partition of a group."""

    view: PartitionView
    #: The name of the member that has it; "" = nobody; None = the broker does not tell.
    member: str | None
    #: The name of the member that gets it next, if the broker tells and it is another one.
    heir: str = ""
    rate: Rate = UNKNOWN

    @property
    def state(self) -> str:
        """For programs: "known", or why there is no lag, or none that can be relied on."""
        if not self.view.exists:
            return "gone"
        if self.view.leader is None and self.view.fault:
            return "no_leader"
        if self.view.end is None:
            return "not_told"
        if self.view.beyond:
            return "beyond_end"
        if self.view.at is None:
            return "not_told" if self.view.fault else "never_committed"
        return "given_out" if self.view.given_out else "known"

    @property
    def wrong(self) -> bool:
        """Whether somebody should look at it: not merely new to the group."""
        return self.state not in ("known", "never_committed", "given_out") or bool(self.view.lost)

    @property
    def in_log(self) -> int | None:
        """Records in the log, at most."""
        return None if self.view.end is None or self.view.first is None else self.view.end - self.view.first

    @property
    def remark(self) -> str:
        """For people."""
        view = self.view
        parts = []
        if self.state == "never_committed":
            left = self.in_log
            said = "" if left is None else f"; {left:,} in the log" if left else "; the log is empty"
            parts.append("never committed" + said)
        elif self.state == "beyond_end":
            parts.append("the offset is beyond the log's end: the topic was made again, or has lost records")
        elif self.state == "given_out" and view.end is not None and view.at is not None:
            parts.append(f"{view.end - view.at:,} not delivered yet; messages in flight are not counted")
        elif view.fault:
            parts.append(view.fault)
        if view.position is not None and view.position != view.committed:
            parts.append(f"by the store the group goes on at {view.position:,}")
        if view.lost:
            parts.append(f"{view.lost:,} lost: the log begins at {view.first:,}")
        if self.heir:
            parts.append(f"moves to {self.heir}")
        return "; ".join(parts)

    def as_json(self) -> dict[str, object]:
        """For programs."""
        partition = self.view.partition
        catch_up_s = self.rate.catch_up_s(self.view.lag)
        return {
            "type": "partition",
            "topic": partition.topic,
            "partition": partition.number,
            **({"broker": partition.broker} if partition.broker else {}),
            "member": self.member,
            "committed": self.view.committed,
            "position": self.view.position,
            "first": self.view.first,
            "end": self.view.end,
            "lag": self.view.lag,
            "lost": self.view.lost,
            "state": self.state,
            "remark": self.remark,
            "consumed_per_s": self.rate.consumed_s,
            "produced_per_s": self.rate.produced_s,
            "catch_up_s": None if catch_up_s == math.inf else catch_up_s,
        }


class Total(NamedTuple):
    """Of several partitions."""

    partitions: int
    lag: int  #: of those of which it is known
    unknown: int  #: partitions of which it is not
    rate: Rate

    @staticmethod
    def of(lines: list[Line]) -> Total:
        """The sum."""
        known = [line.view.lag for line in lines if line.view.lag is not None]
        consumed = [line.rate.consumed_s for line in lines if line.rate.consumed_s is not None]
        produced = [line.rate.produced_s for line in lines if line.rate.produced_s is not None]
        rate = Rate(sum(consumed) if consumed else None, sum(produced) if produced else None)
        return Total(len(lines), sum(known), len(lines) - len(known), rate)

    @property
    def catch_up_s(self) -> float | None:
        """The time to catch up, at the rate of late; None too where the lag is not known."""
        return self.rate.catch_up_s(None if self.unknown else self.lag)

    @property
    def text(self) -> str:
        """The lag for people. It says of how many partitions the lag is unknown."""
        if not self.unknown:
            return f"{self.lag:,}"
        return "unknown" if self.unknown == self.partitions else f"{self.lag:,}, unknown in {self.unknown}"


def lines_of(view: GroupView, rates: Rates | None = None) -> list[Line]:
    """A line for each partition, in order."""
    called = names(view)
    owners, told = view.owners, all(member.partitions is not None for member in view.members)
    heirs = {partition: member for member in view.members for partition in member.target or ()}
    lines = []
    for partition, each in sorted(view.partitions.items()):
        owner, heir = owners.get(partition), heirs.get(partition)
        lines.append(
            Line(
                view=each,
                member=called[owner.id] if owner else "" if told else None,
                heir=called[heir.id] if heir and (owner is None or heir.id != owner.id) else "",
                rate=UNKNOWN if rates is None else rates.of(partition),
            )
        )
    return lines


def names(view: GroupView) -> dict[str, str]:
    """Short names for members: the shortest that tells them apart, of static id, client id, host and member id."""
    clients = Counter(member.client_id for member in view.members)
    pairs = Counter((member.client_id, member.host) for member in view.members)

    def name(member: MemberView) -> str:
        if member.instance_id:
            return member.instance_id
        if clients[member.client_id] == 1:
            return member.client_id
        return f"{member.client_id} at {member.host}" if pairs[member.client_id, member.host] == 1 else member.id

    return {member.id: name(member) for member in view.members}
