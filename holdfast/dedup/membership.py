"""A membership and the thread that keeps it: it beats, watches the group, and publishes plans."""

from __future__ import annotations

import logging
import math
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from holdfast.dedup.groups import Beat, Plan, Refusal
from holdfast.dedup.planning import next_plan
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from holdfast.dedup.groups import GroupMember, GroupSession, Standing, Strategy, View
    from holdfast.dedup.lease import Lease
    from holdfast.records import Partition
    from holdfast.runtime import Runtime
    from holdfast.timing import Deadline

log = logging.getLogger("holdfast.dedup")

#: Pauses as shares of the lease, like those of sessions.
_BEAT_EVERY = 1 / 3
_TRY_AGAIN_AFTER = 1 / 20
#: The member that has changed the group makes the plan, after this pause, in which others may join as well,
_GATHER_S = 0.005
#: and not sooner than this after the previous plan: a hundred members that join in a second cause ten plans.
_BETWEEN_PLANS_S = 0.1
#: If there is no plan by then, another member makes it: the one that changed the group may have died. Each waits for a
#: random time in this range, so that one of them is first.
_STEP_IN_S = (0.08, 0.16)
#: Tries to leave with a plan for the others, while the group goes on changing.
_LEAVE_TRIES = 10
#: Queues that one log line names at most.
_TOLD = 8


class _Offer(NamedTuple):
    """Queues and servers that a member sees."""

    queues: frozenset[Partition]
    servers: frozenset[str]


class Membership:
    """A member that is kept in its group by a thread of its own. Any thread may call.

    Made after `join` was answered; `start` begins the thread. A lost member gives up all queues without a commit; a new
    join gets a new id.

    Args:
        session: one that has joined. From `start` on only the thread calls it.
        lease: of that join.
        runtime: its clock judges the lease and paces the thread.
        strategy: makes plans.
        wake: called by the thread when the plan or `lost` has changed.
        queues: those of the join.
        servers: those of the join.
        watch_s: seconds between two looks whether the group has changed.
    """

    def __init__(
        self,
        session: GroupSession,
        lease: Lease,
        runtime: Runtime,
        *,
        strategy: Strategy,
        wake: Callable[[], None],
        queues: frozenset[Partition],
        watch_s: float,
        servers: frozenset[str] = frozenset(),
    ) -> None:
        self._session = session
        self._lease = lease
        self._runtime = runtime
        self._strategy = strategy
        self._wake = wake
        self._watch_s = watch_s
        self._offered = self._offering = _Offer(queues, servers)
        self._plan = Plan()
        self._members: tuple[GroupMember, ...] = ()
        self._view: View | None = None  #: the newest view that has this member in it
        self._beat_at = runtime.now() + lease.lease_s * _BEAT_EVERY
        self._publish_at: float | None = None  #: None = the plan is settled, as far as we know
        self._planned_at = -math.inf  #: when the plan of that view was made, by our clock
        self._silent = self._hung = False  #: whether these states have been logged
        self._left_out: frozenset[Partition] = frozenset()  #: queues without a member that have been logged
        self._leaving: Deadline | None = None
        self._call = runtime.event()  #: wakes the thread: an offer has changed, or the member leaves
        self._over = runtime.event()

    # Any thread.

    @property
    def id(self) -> str:
        """`<client id>#<random>`: unique to this join."""
        return self._lease.session_id

    @property
    def lost(self) -> bool:
        """Whether the membership is over: by our own clock, without a call, or by a reply of the store. Once True, True
        for ever. Does not block."""
        return not self._lease.live()

    def plan(self) -> Plan:
        """The newest known plan, some 50 ms old at most while the store answers. Does not block."""
        return self._plan

    def members(self) -> Sequence[GroupMember]:
        """The members of the group at the last look. Does not block."""
        return self._members

    def offer(self, queues: Sequence[Partition], servers: Collection[str] = ()) -> None:
        """Report all queues that this member sees at the name server now, and the addresses of the cluster's servers,
        as in `Member`. Does not block; the thread sends it."""
        if not self._lease.own_process:
            return
        offering = _Offer(frozenset(queues), frozenset(servers))
        if offering != self._offering:
            self._offering = offering
            self._call.set()

    def vouch(self, seconds: float) -> None:
        """Report that the work goes on: stay in the group for `seconds` from now on. Before the first call there is no
        limit. Does not block."""
        self._lease.vouch(seconds)

    def leave(self, deadline: Deadline) -> None:
        """Leave, and publish the plan of the others in the same call. Returns when that is done, at the deadline at the
        latest. Does not raise: without an answer the lease runs out. Idempotent."""
        if not self._lease.own_process:
            return  # in a forked child: the membership is the parent's
        if self._leaving is None:
            self._leaving = deadline
        self._call.set()
        self._over.wait(deadline.left_s())

    def start(self) -> None:
        """Start the daemon thread that keeps the membership until it leaves or is lost."""
        self._runtime.spawn(self._run, f"holdfast-group-{self.id}")

    # The thread.

    def _run(self) -> None:
        try:
            self._to_be_planned(_GATHER_S)
            pause_s = 0.0
            while self._lease.live() and self._leaving is None:
                if self._call.wait(pause_s):
                    self._call.clear()
                pause_s = self._turn()
            if self._leaving is not None and self._lease.live():
                self._leave(self._leaving)
            else:
                log.error("member %s is out of its group: its lease of %s s is over", self.id, self._lease.lease_s)
        finally:
            self._lease.lose()
            self._over.set()
            self._tell()

    def _turn(self) -> float:
        """Do what is due. Returns the seconds until the next round."""
        try:
            self._keep()
        except StoreError as error:
            if not self._silent:
                log.warning("member %s goes on with the plan it has: %s", self.id, error)
            self._silent = True
            return self._again_s
        except Exception:
            # An error must not end the thread unseen; the strategy may be the user's code.
            log.exception("member %s could not look after its group, and tries again", self.id)
            return self._again_s
        if self._silent:
            log.info("member %s reaches its group again", self.id)
        self._silent = False
        if self._offering is not self._offered:
            return 0.0
        at = self._publish_at
        return self._watch_s if at is None else max(0.0, min(self._watch_s, at - self._runtime.now()))

    @property
    def _again_s(self) -> float:
        return max(self._watch_s, min(1.0, self._lease.lease_s * _TRY_AGAIN_AFTER))

    def _keep(self) -> None:
        now = self._runtime.now()
        offering = self._offering
        if now >= self._beat_at and self._vouched():
            standing = self._beat(now)
        elif offering is not self._offered:
            standing = self._heard(self._session.offer(*offering))
            self._offered = offering
            self._to_be_planned(_GATHER_S)
        else:
            standing = self._session.standing()
        if standing is None:
            return
        if self._view is None or standing != self._view.standing:
            self._look()
        if self._publish_at is not None and self._runtime.now() >= self._publish_at:
            self._make_plan()

    def _vouched(self) -> bool:
        hung, self._hung = self._hung, not self._lease.vouched
        if self._hung and not hung:
            log.error("member %s sends no heartbeat: its process has not reported progress in time", self.id)
        return not self._hung

    def _beat(self, sent_at: float) -> Standing | None:
        reply: Beat | Standing | Refusal = self._session.beat()
        due_s = None
        if reply is Refusal.UNKNOWN and self._view is not None:
            log.warning("the store has forgotten the group of member %s: it is put back as it was seen last", self.id)
            reply = self._session.restore(self._view)
        if isinstance(reply, Beat):
            reply, due_s = reply
        standing = self._heard(reply)
        if standing is None:
            return None
        self._lease.renewed(sent_at)
        self._beat_at = sent_at + self._lease.lease_s * _BEAT_EVERY
        if due_s is not None:
            # Beat again as soon as another member's lease ends: its queues wait for its removal.
            self._beat_at = min(self._beat_at, self._runtime.now() + due_s + 0.002)
        if self._view is not None and standing.view != self._view.standing.view:
            self._to_be_planned(_GATHER_S)  # perhaps this call has removed a dead member
        return standing

    def _heard(self, reply: Standing | Refusal) -> Standing | None:
        if reply is Refusal.LOST or reply is Refusal.UNKNOWN:
            self._lease.lose()
        return None if isinstance(reply, Refusal) else reply

    def _to_be_planned(self, after_s: float) -> None:
        at = self._runtime.now() + after_s
        self._publish_at = at if self._publish_at is None else min(self._publish_at, at)

    def _look(self) -> None:
        view = self._session.look()
        if self.id not in view.members:
            self._beat_at = self._runtime.now()  # this member was removed, or the store has lost it: a beat tells which
            return
        self._view = view
        self._planned_at = self._runtime.now() - view.plan_age_s
        self._members = tuple(view.members.values())
        offered = _Offer(view.offers.get(self.id, frozenset()), view.members[self.id].servers)
        if offered != self._offered:
            self._offered = offered  # a failover has lost our last offer: it is sent again
        if view.standing.settled:
            self._publish_at = None
        elif self._publish_at is None:
            self._to_be_planned(self._runtime.random.uniform(*_STEP_IN_S))
        self._know(view.plan)

    def _know(self, plan: Plan) -> None:
        if plan.stamp != self._plan.stamp:
            self._plan = plan
            self._tell()

    def _make_plan(self) -> None:
        """Publish a plan for the newest view; later, if the previous plan is too young."""
        view, now = self._view, self._runtime.now()
        if view is None or view.standing.settled:
            self._publish_at = None
            return
        if now < self._planned_at + _BETWEEN_PLANS_S:
            self._publish_at = self._planned_at + _BETWEEN_PLANS_S
            return
        self._publish_at = now + 1.0  # the next try, if the strategy raises
        plan = next_plan(view, self._strategy)
        standing = self._heard(self._session.publish(view, plan))
        if standing is None:
            self._publish_at = now  # the group has changed since: look at it again, and try at once
            return
        self._publish_at = None
        self._view = view._replace(standing=standing, plan=plan)
        if plan is not view.plan:
            self._planned_at = self._runtime.now()
        self._tell_of_what_is_left_out(view.queues() - plan.owners.keys())
        self._know(plan)

    def _tell_of_what_is_left_out(self, queues: frozenset[Partition]) -> None:
        known, self._left_out = self._left_out, queues
        if queues - known:
            some = ", ".join(map(str, sorted(queues)[:_TOLD]))
            rest = f" and {len(queues) - _TOLD} more" if len(queues) > _TOLD else ""
            log.warning("the strategy gives these queues to no member, so no member reads them: %s%s", some, rest)

    def _leave(self, deadline: Deadline) -> None:
        """Ask until the store answers or the deadline has passed. If the group changes meanwhile, make the plan again;
        after some tries leave without one."""
        for tries in count():
            try:
                view = self._session.look() if tries < _LEAVE_TRIES else None
                plan = None if view is None else self._plan_without_us(view)
                reply = self._session.leave() if plan is None else self._session.leave(view, plan)
                if reply is not Refusal.BEHIND:
                    return
            except StoreError as error:
                if deadline.passed:
                    log.warning("member %s has not left and runs out with its lease: %s", self.id, error)
                    return
                self._runtime.sleep(deadline.left_s(at_most=self._again_s))

    def _plan_without_us(self, view: View) -> Plan | None:
        if self.id not in view.members:
            return None
        try:
            return next_plan(view, self._strategy, without=self.id)
        except Exception:
            log.exception("member %s leaves without a plan for the others: they make one", self.id)
            return None

    def _tell(self) -> None:
        try:
            self._wake()
        except Exception:
            log.exception("waking the source of member %s failed", self.id)
