"""Members of a Kafka group, with the fields that an assignment needs, and their former partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from holdfast.records import Partition

_MOST_WEIGHT = 1000


class Weighed(Protocol):
    """A member and its weight: a Subscriber of Kafka's model, or a GroupMember of a coordinator."""

    @property
    def id(self) -> str:
        """The name in plans."""
        ...

    @property
    def weight(self) -> int:
        """The member's share relative to other members'."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member and its subscribed topics.

    Args:
        id: the member id, unique in the group.
        topics: the topics that it is subscribed to; topics without partitions are allowed.
        weight: its share of these topics, which only `sticky` uses: 2 gets twice as much as 1.
        rack: its `client.rack`; empty: not known.
        instance_id: `group.instance.id` of a static member.

    Raises:
        SettingError: a field cannot work.
    """

    id: str
    topics: frozenset[str]
    weight: int = 1
    rack: str = ""
    instance_id: str | None = None

    def __post_init__(self) -> None:
        if not self.id:
            raise SettingError("id", self.id, "give the member id")
        if isinstance(self.weight, bool) or not 1 <= self.weight <= _MOST_WEIGHT:
            raise SettingError("weight", self.weight, f"give a whole number from 1 to {_MOST_WEIGHT}")


class Claim(NamedTuple):
    """The partitions that a member claims to have (`owned partitions` of its JoinGroup), and the generation."""

    member: str
    partitions: Collection[Partition]
    generation: int = -1


def last_owners(claims: Iterable[Claim]) -> dict[Partition, str]:
    """The last owner of each partition. If members' claims differ, the latest generation counts.

    If two members claim a partition in the same generation, both lose it, as in Kafka: one of them is wrong, and it is
    unknown which.
    """
    latest: dict[Partition, tuple[int, str | None]] = {}
    for member, partitions, generation in claims:
        for partition in partitions:
            known = latest.get(partition)
            if known is None or generation > known[0]:
                latest[partition] = generation, member
            elif generation == known[0] and member != known[1]:
                latest[partition] = generation, None
    return {partition: owner for partition, (_, owner) in latest.items() if owner is not None}
