"""The protocol of groups: members with deadlines, the queues that they see, and the plan that assigns queues to
members.

For brokers that assign nothing themselves (RocketMQ's pull). The plan says which member *should* have a queue; the
queue's position decides which member has it (claims.py: `acquire` waits for an owner that lives, `let_go` frees). An
old plan therefore costs time and never a record.

For each group the store holds:

*Members*: id -> client id, weight, the queues that it offers (sees at the name server), the addresses of the cluster as
it sees them, and a lease: a deadline in the store's own time. An id is used once. A member whose deadline has passed is
*dead*, and stays in the group until a later call of any member removes it. The *view* is a number that rises with each
change of the members or of their offers. No number is given twice: where a store may have lost the last changes, it
rises by more than 1.

*Plan*: queue -> member, for all queues that at least one member offers, except those that the strategy leaves out on
purpose (`leaves_out`); its *stamp*, which no other plan ever has (its generation and a random part); and `planned`, the
view that it was made for. The plan is *settled* while `planned` is the current view.

*Subscription*: one text, the same for all members.

| call | if | then | reply |
|---|---|---|---|
| join(me, queues) | my id is dead | - | LOST |
| | a living member and I both list servers, and none is the same | the dead are removed | Elsewhere |
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

`restore` is for a store that has lost its data. A dead member is known as dead for an hour. An id that is not known,
though its lease has not ended by its own process' clock, was therefore forgotten. The first member that notices puts
back the group as it has seen it last: the others are not taken for gone, and no queue moves. A member that left since
is in the group for one more lease.

Queues: the plan has the *union* of what members offer. Two members whose routes differ for a while agree all the same,
since the union is the same whichever member computes it. A queue enters the plan when the first member sees it, and
leaves it when no member does. A member with an old route keeps a removed queue in the plan: its owner finds nothing
there, which costs nothing.

Clusters: two clusters whose topics and brokers have the same names would share one plan, and each would give queues to
members that cannot reach them. Servers are compared at a join only, and count as two clusters only if no address is the
same: after a name server is added, or a broker moves, some addresses remain. Members report their servers again when
these change.

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
        subscription: a text that is equal in all members, made by the source.
        weight: its share of the queues.
        description: for people: host, process.
        servers: addresses of the brokers' cluster as it sees them now: name servers, brokers. Empty = it lists none.

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
        """The number of plans so far. It does not fall as long as the store keeps its data; only the stamp is
        unique."""
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
    """Replies to calls that have changed nothing."""

    LOST = "LOST"  #: the member is dead; its id is never used again
    UNKNOWN = "UNKNOWN"  #: the store has never heard of the member, or has forgotten it
    BEHIND = "BEHIND"  #: the group has changed since it was looked at


class Differs(NamedTuple):
    """The reply to a join whose subscription is not that of the living members."""

    subscription: str  #: that of the living members
    clients: Sequence[str]  #: their client ids


class Elsewhere(NamedTuple):
    """The reply to a join if a living member sees none of the joining member's servers."""

    clients: Sequence[str]  #: client ids of such members
    servers: frozenset[str]  #: the servers that they see


class Standing(NamedTuple):
    """A group's view and plan by their numbers: cheap to read, and enough to tell whether a `look` is needed."""

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
    #: Seconds until the first lease of the other members ends, if it is not renewed; None = there is no other.
    due_s: float | None


class View(NamedTuple):
    """The whole state of a group at one moment."""

    standing: Standing
    plan: Plan
    plan_age_s: float  #: the plan's age by the store's clock; infinite = there is no plan
    subscription: str
    members: Mapping[str, GroupMember]
    offers: Mapping[str, frozenset[Partition]]  #: by member
    left_s: Mapping[str, float]  #: of each member's lease; 0 = dead, and not yet removed

    def queues(self, *, without: str = "") -> frozenset[Partition]:
        """All queues that members offer. Args: without: a member whose offer does not count."""
        # Members that offer the same share one set object, so the union of a thousand equal offers is cheap.
        found = {id(offer): offer for member_id, offer in self.offers.items() if member_id != without}
        return frozenset(queue for offer in found.values() for queue in offer)


class Strategy(Protocol):
    """Makes a plan. Pure; the result does not depend on the order of its arguments. Strategies are in plugin/assign.

    A strategy with an attribute `leaves_out` that is true may leave queues out of its plan: no member reads them. A
    plan of any other strategy that lacks a queue is a mistake, and is not published.
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
    """Whether the strategy may leave queues out of its plan."""
    return bool(getattr(strategy, "leaves_out", False))


class GroupSession(Protocol):
    """One join of one member: the rows of the table, one round trip each.

    One thread at a time. Raises StoreUnavailable where there is no answer: then the next call has a higher generation.
    """

    @property
    def id(self) -> str:
        """The member's id, never used again."""
        ...

    def join(self, member: Member, queues: frozenset[Partition]) -> Standing | Differs | Elsewhere | Refusal:
        """Join the group."""
        ...

    def beat(self) -> Beat | Refusal:
        """Renew the lease. Removes dead members."""
        ...

    def offer(self, queues: frozenset[Partition], servers: frozenset[str]) -> Standing | Refusal:
        """Report the queues, and the servers' addresses, that this member sees."""
        ...

    def standing(self) -> Standing:
        """Read the group's standing, which is cheap. A group that does not exist has (0, 0, "")."""
        ...

    def look(self) -> View:
        """Read the whole state of the group."""
        ...

    def publish(self, view: View, plan: Plan) -> Standing | Refusal:
        """Publish the plan for this view. A plan with the stamp of the view's = the old plan still fits."""
        ...

    def leave(self, view: View | None = None, plan: Plan | None = None) -> Standing | Refusal:
        """Leave the group, and publish the plan of the others in the same call. Without a plan, they make one."""
        ...

    def restore(self, view: View) -> Standing | Refusal:
        """Put back what the store has lost of this view; this member is in it."""
        ...
