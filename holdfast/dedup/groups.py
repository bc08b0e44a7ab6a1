"""The protocol of groups: members with deadlines, what they see, and the plan of who should have which queue.

For brokers that hand nothing out themselves (RocketMQ's pull). The plan says who *should* have a queue; who has it is
decided by its position (claims.py: `acquire` waits for an owner that lives, `let_go` frees). So a plan that is old
costs time and never a record.

Of a group, the store holds:

*Members*: id -> client id, weight, the queues that it offers (sees at the name server), the addresses of the cluster as
it sees them, and a lease: a deadline in the store's own time. An id is used once. A member whose deadline has passed is
*dead*, and stays in until somebody's call removes it. The *view* is a number that rises with each change of the members
or of their offers, by more than 1 where a store may have lost the last of them: it gives no number a second time.

*Plan*: queue -> member, of all queues that at least one member offers, but for those that the strategy gives to nobody
on purpose (`leaves_out`); its *stamp*, which no other plan ever has (its
generation and a random part); and `planned`, the view that it was made for: *settled* where that is the view.

*Subscription*: one text, the same for all members.

| call | if | then | reply |
|---|---|---|---|
| join(me, queues) | my id is dead | - | LOST |
| | a living member and I both tell servers, and none is the same | the dead are removed | Elsewhere |
| | a living member subscribes otherwise | the dead are removed | Differs |
| | else | the dead are removed; I am in, with a lease; the subscription is mine; view + 1 | Standing |
| beat | my id is not known | - | UNKNOWN |
| | it is dead | - | LOST |
| | else | my lease begins anew; the dead are removed; if there were any, view + 1 | Standing |
| offer(queues, servers) | as beat | - | as beat |
| | they are those that I offered before, and servers too | - | Standing |
| | else | view + 1 | Standing |
| look | - | - | View |
| publish(view, owners) | as beat | - | as beat |
| | the store's view and stamp are not those of `view` | - | BEHIND |
| | owners are those of the plan | planned = view | Standing |
| | else | a new plan, generation + 1, planned = view | Standing |
| leave(view, owners) | I am not in | - | Standing |
| | the store's view and stamp are not those of `view` | - | BEHIND |
| | else | I am dead and not in, view + 1; a new plan, generation + 1, planned = the new view | Standing |
| leave() | - | I am dead and not in; view + 1 if I was in | Standing |
| restore(view) | my id is known | - | as beat |
| | others have begun anew with another subscription | - | LOST |
| | else | all of `view` that the store does not have is put back, with a new lease each; view + 1 | Standing |

`restore` is for a store that has lost its data: a dead member is still known as dead for an hour, so an id that is not
known, and whose lease has not ended by its own process' clock, was forgotten. Who comes first puts back the group as it
has seen it last, so that the others are not taken for gone and nothing moves; who left since is in for a lease more.

Queues: the plan has the *union* of what members offer. Two members whose routes differ for a while agree all the same,
since a union does not depend on who computes; a queue enters when the first member sees it, and goes when nobody does.
A member with an old route keeps a queue in the plan that is gone: its owner finds nothing there, which costs nothing.

Clusters: two that have topics and brokers of the same names would share one plan, and each give queues to who cannot
reach them. Servers are compared at a join alone, and tell of two clusters only where none is the same: a name server
that is added, or a broker that moves, leaves others; and members say it anew as they see it.

Late calls: as in claims.py, each call carries the member's call generation, and lower ones are refused.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.records import Partition

_MOST_WEIGHT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A process as it describes itself when it joins.

    Args:
        client_id: the name by which the broker knows it.
        subscription: one text that is equal in all members, in the words of the source.
        weight: its share of the queues.
        description: for people: host, process.
        servers: addresses of the brokers' cluster as it sees them now: name servers, brokers. None = it does not tell.

    Raises:
        SettingError: a field cannot work.
    """

    client_id: str
    subscription: str
    weight: int = 1
    description: str = ""
    servers: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not self.client_id:
            raise SettingError("client_id", self.client_id, "give the name by which the broker knows this process")
        if isinstance(self.weight, bool) or not 1 <= self.weight <= _MOST_WEIGHT:
            raise SettingError("weight", self.weight, f"give a whole number from 1 to {_MOST_WEIGHT}")


class GroupMember(NamedTuple):
    """A member as the group sees it."""

    id: str
    client_id: str
    weight: int = 1
    description: str = ""
    servers: frozenset[str] = frozenset()


class Plan:
    """Which member should have which queue. Immutable."""

    def __init__(self, stamp: str = "", owners: Mapping[Partition, str] | None = None) -> None:
        self.stamp = stamp
        self.owners: Mapping[Partition, str] = owners or {}

    @property
    def generation(self) -> int:
        """How many plans there were. It does not fall as long as the store keeps its data; only the stamp is unique."""
        return int(self.stamp.partition(":")[0] or 0)

    @cached_property
    def _by_member(self) -> dict[str, frozenset[Partition]]:
        queues = defaultdict(list)
        for queue, member_id in self.owners.items():
            queues[member_id].append(queue)
        return {member_id: frozenset(found) for member_id, found in queues.items()}

    def of(self, member_id: str) -> frozenset[Partition]:
        """The queues of one member."""
        return self._by_member.get(member_id, frozenset())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and (self.stamp, self.owners) == (other.stamp, other.owners)

    def __hash__(self) -> int:
        return hash(self.stamp)

    def __repr__(self) -> str:
        return f"Plan({self.stamp!r}, {len(self.owners)} queues of {len(self._by_member)} members)"


class Refusal(Enum):
    """Replies that change nothing."""

    LOST = "LOST"  #: the member is dead; its id is never used again
    UNKNOWN = "UNKNOWN"  #: the store has never heard of the member, or has forgotten it
    BEHIND = "BEHIND"  #: the group has changed since it was looked at


class Differs(NamedTuple):
    """The reply to a join whose subscription is not that of the living members."""

    subscription: str  #: theirs
    clients: Sequence[str]  #: their client ids


class Elsewhere(NamedTuple):
    """The reply to a join whose servers are none of those that a living member sees."""

    clients: Sequence[str]  #: their client ids
    servers: frozenset[str]  #: that they see


class Standing(NamedTuple):
    """Where a group is: cheap to ask, and what tells whether a look is worth it."""

    view: int
    planned: int
    stamp: str

    @property
    def settled(self) -> bool:
        """Whether the plan was made for this view."""
        return self.view == self.planned


class Beat(NamedTuple):
    """The reply to `beat`."""

    standing: Standing
    #: Seconds until the first lease of the others ends, if it is not renewed; None = there is no other.
    due_s: float | None


class View(NamedTuple):
    """All of a group at one moment."""

    standing: Standing
    plan: Plan
    plan_age_s: float  #: how long the plan stands, by the store's clock; infinite where there is none
    subscription: str
    members: Mapping[str, GroupMember]
    offers: Mapping[str, frozenset[Partition]]  #: by member
    left_s: Mapping[str, float]  #: of each member's lease; 0 = dead, and not yet removed

    def queues(self, *, without: str = "") -> frozenset[Partition]:
        """All that members offer, but for one of them."""
        # Members that see the same share one set: a union of a thousand equal ones is one.
        found = {id(offer): offer for member_id, offer in self.offers.items() if member_id != without}
        return frozenset(queue for offer in found.values() for queue in offer)


class Strategy(Protocol):
    """Makes a plan. Pure, and the same whatever the order of what it is given. Strategies are in plugin/assign.

    One that has an attribute `leaves_out`, and that is true, may give queues to nobody: they are absent from its plan,
    and not read. Of all others a plan that lacks a queue is a mistake, and not published.
    """

    def __call__(
        self, members: Sequence[GroupMember], queues: Sequence[Partition], previous: Mapping[Partition, str]
    ) -> Mapping[Partition, str]:
        """Give each queue to one of the members.

        Args:
            members: at least one.
            queues: each once.
            previous: queue -> member id; may name queues and members that are gone.
        """
        ...


def leaves_out(strategy: Strategy) -> bool:
    """Whether it may give queues to nobody."""
    return bool(getattr(strategy, "leaves_out", False))


class GroupSession(Protocol):
    """One join of one member: the rows of the table, one round trip each.

    One thread at a time. Raises StoreUnavailable where there is no answer: then the next call has a higher generation.
    """

    @property
    def id(self) -> str:
        """The member's, never used again."""
        ...

    def join(self, member: Member, queues: frozenset[Partition]) -> Standing | Differs | Elsewhere | Refusal:
        """Come in."""
        ...

    def beat(self) -> Beat | Refusal:
        """Stay in."""
        ...

    def offer(self, queues: frozenset[Partition], servers: frozenset[str]) -> Standing | Refusal:
        """Say which queues there are, and which servers."""
        ...

    def standing(self) -> Standing:
        """One cheap read. A group that is not there stands at (0, 0, "")."""
        ...

    def look(self) -> View:
        """All of the group."""
        ...

    def publish(self, view: View, plan: Plan) -> Standing | Refusal:
        """The plan for what was looked at; one of the same stamp as the view's = that one still fits."""
        ...

    def leave(self, view: View | None = None, plan: Plan | None = None) -> Standing | Refusal:
        """Go, and say in the same call who gets what, or leave that to the others."""
        ...

    def restore(self, view: View) -> Standing | Refusal:
        """Put back what the store has forgotten, as far as it is in `view`; I am in there."""
        ...
