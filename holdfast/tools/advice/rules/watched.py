"""A live group as rules read it: some looks, one after the other, and what they show together. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from holdfast.records import Partition
    from holdfast.tools.advice.group_view import GroupView, MemberView, PartitionView

#: A RocketMQ broker's own topics for what is to come again: shared out by themselves, and next to nothing is in them.
_RETRY: Final = "%RETRY%"
_MOST_NAMES: Final = 5


# Not slotted: cached properties are kept in its dictionary.
@dataclass(frozen=True, kw_only=True)
class Watched:
    """Looks at one group.

    Raises:
        SettingError: there is no look, or not a time for each.
    """

    #: In their order; at least one.
    views: tuple[GroupView, ...]
    #: When each was taken, in seconds.
    at_s: tuple[float, ...]
    #: How often members commit at the slowest. An offset that stands still for less says nothing.
    commit_interval_s: float = 5.0

    def __post_init__(self) -> None:
        if not self.views or len(self.views) != len(self.at_s):
            raise SettingError("views", len(self.views), "give one look or more, and a time for each")

    @property
    def now(self) -> GroupView:
        """The last look."""
        return self.views[-1]

    @property
    def first(self) -> GroupView:
        """The first look; the same as `now` where there is only one."""
        return self.views[0]

    @property
    def apart_s(self) -> float:
        """From the first look to the last."""
        return self.at_s[-1] - self.at_s[0]

    @property
    def kafka(self) -> bool:
        """Whether it is a group at Kafka."""
        return self.now.kind == "kafka"

    @cached_property
    def calm(self) -> bool:
        """Whether the assignment that the last look shows is settled."""
        return not self.now.rebalancing and bool(self.now.members)

    @cached_property
    def changes(self) -> int:
        """Between how many looks the group has changed: its generation has moved, or its members. What a
        look does not tell is as it was."""
        changes, known = 0, None
        for before, after in pairwise(self.told):
            known = known if before.generation is None else before.generation
            moved = None not in (known, after.generation) and known != after.generation
            changes += moved or ids_of(before) != ids_of(after)
        return changes

    @property
    def told(self) -> tuple[GroupView, ...]:
        """The looks that show the members: those that found a coordinator."""
        return tuple(view for view in self.views if view.state)

    @cached_property
    def generations(self) -> int | None:
        """By how much its generation has moved; None = not told."""
        if self.first.generation is None or self.now.generation is None:
            return None
        return max(self.now.generation - self.first.generation, 0)

    @cached_property
    def has(self) -> Mapping[str, frozenset[Partition]]:
        """The partitions of each member, as of the last look."""
        return shares(self.now)

    def offsets(self) -> Iterator[tuple[PartitionView, PartitionView]]:
        """Each partition that exists in the first look and in the last, as both show it; without retry topics."""
        for partition, now in sorted(self.now.partitions.items()):
            before = self.first.partitions.get(partition)
            if before is not None and now.exists and not is_retry(partition.topic):
                yield before, now


def shares(view: GroupView) -> Mapping[str, frozenset[Partition]]:
    """The partitions of each member, by its id, without retry topics; a member whose partitions are not known is
    absent."""
    return {
        each.id: frozenset(partition for partition in each.partitions if not is_retry(partition.topic))
        for each in view.members
        if each.partitions is not None
    }


def behind(member: MemberView) -> bool:
    """Whether it has other partitions than it is to have."""
    return member.target is not None and member.partitions is not None and member.target != member.partitions


def is_retry(topic: str) -> bool:
    """Whether it is a RocketMQ group's own topic for what is to come again."""
    return topic.startswith(_RETRY)


def member_name(member: MemberView) -> str:
    """For people: what an operator can find it by."""
    name = member.instance_id or member.client_id or member.id
    return f"{name} at {member.host}" if member.host else name


def some(names: Iterable[object], most: int = _MOST_NAMES) -> str:
    """The first few, and how many more there are."""
    listed = [str(each) for each in names]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def ids_of(view: GroupView) -> set[str]:
    """The members of that look, by their ids."""
    return {each.id for each in view.members}
