"""Watch: heartbeats, routes, foreign members and foreign commits, checked on a thread of its own."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.foreign_members import ForeignMemberWatch
from holdfast.adapters.rocketmq.inbox import Alarm
from holdfast.adapters.rocketmq.reaching import insist, reach
from holdfast.adapters.rocketmq.remoting import Admin, Consumer, codes
from holdfast.adapters.rocketmq.trouble_lines import TroubleLines
from holdfast.adapters.rocketmq.upkeep import Upkeep
from holdfast.errors import SourceError, SourceUnavailable, UnknownGroup
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.adapters.rocketmq.inbox import Inbox
    from holdfast.adapters.rocketmq.joining import Seat
    from holdfast.adapters.rocketmq.queues import Queues
    from holdfast.adapters.rocketmq.remoting import Notice, RemotingClient
    from holdfast.adapters.rocketmq.settings import PullSettings
    from holdfast.adapters.rocketmq.topics import Topics
    from holdfast.dedup.coordinator import Coordinator

_log = logging.getLogger("holdfast.rocketmq")

#: How often the offsets at the brokers are compared with those that they have acknowledged.
_OFFSETS_S = 5.0
#: How often the marks of logs are checked, renewed and stored.
_LOGS_S = 5.0
_FOREIGN_MEMBERS_S = 30.0
_POPS_END_S = 10.0
_INTRODUCE_S = 3.0
_GROUP_S = 3.0


class Watch:
    """Watches brokers and routes. Findings are posted to the inbox.

    Args:
        client: sends the requests.
        coordinator: has the group's members.
        settings: the intervals.
        topics: the subscription, and the routes.
        seat: offers the queues to the coordinator.
        queues: their offsets and marks are checked from time to time.
        inbox: gets alarms.
    """

    def __init__(
        self,
        client: RemotingClient,
        coordinator: Coordinator,
        settings: PullSettings,
        *,
        topics: Topics,
        seat: Seat,
        queues: Queues,
        inbox: Inbox,
    ) -> None:
        self._client, self._coordinator, self._settings = client, coordinator, settings
        self._topics, self._seat, self._queues, self._inbox = topics, seat, queues, inbox
        self._foreign_members = ForeignMemberWatch(client, coordinator, settings.group, topics)
        self._upkeep = Upkeep(settings.group)
        self._heartbeats = self._upkeep.add("heartbeats", self.beat, settings.heartbeat_broker_interval_s)
        self._routes = self._upkeep.add("routes", self.look_at_routes, settings.poll_name_server_interval_s)
        self._others = self._upkeep.add("foreign members", self._look_for_foreign_members, _FOREIGN_MEMBERS_S)
        self._upkeep.add("offsets", queues.commits.look, _OFFSETS_S)
        self._marks = self._upkeep.add("logs", lambda _: queues.renew_marks(), _LOGS_S)
        self._on = False
        self._told: TroubleLines[tuple[str, str]] = TroubleLines(0.0)  # by topic and broker

    # ---- at the start
    def reach(self, deadline: Deadline) -> None:
        """Find the topics; waits for the name servers. Raises SourceError; UnknownTopic at once for a name that does
        not exist, unless a name server may have just started and not know the topics yet."""
        reach(
            lambda: self._topics.look(deadline, first=True),
            self._settings.namesrv,
            deadline,
            lambda: self._may_come(deadline),
        )

    def insist(self, step: Callable[[], object], deadline: Deadline) -> None:
        """Try a step of the start until servers answer. Raises SourceError: see `reaching.insist`."""
        insist(step, self._settings.namesrv, deadline, lambda: self._may_come(deadline))

    def _may_come(self, deadline: Deadline) -> bool:
        """Whether name servers may not know all topics yet: brokers register every 30 s."""
        try:
            known = Admin(self._client).cluster(deadline).brokers
        except SourceUnavailable:
            return True  # no answer yet
        return not known or bool(self._coordinator.members(self._settings.group))

    def check_group(self, deadline: Deadline) -> None:
        """Check that the brokers have the group. Raises UnknownGroup: one has not, and does not create it. A broker
        that does not answer is skipped; `Commits.lasting_refusal` finds it later."""
        limit = Deadline(deadline.left_s(_GROUP_S))
        for broker in sorted({queue.broker for queue in self._topics.queues}):
            try:
                Admin(self._client).group_settings(self._settings.group, broker, limit)
            except UnknownGroup:
                raise
            except SourceError as error:
                _log.info("whether %s has the group is not known yet: %s", broker, error)

    def refuse_foreign_members(self, deadline: Deadline) -> None:
        """Check for foreign members. Raises ForeignMembers with foreign_members="refuse"; else they are logged."""
        found = self._foreign_members.look(deadline, pops_end_s=_POPS_END_S)
        if found and self._settings.foreign_members == "refuse":
            raise self._foreign_members.error(found)
        if found:
            _log.warning("%s", self._foreign_members.error(found))

    def introduce(self, deadline: Deadline) -> None:
        """Send the first heartbeat. Brokers that do not answer get it later. Raises SourceError: one refuses."""
        for error in self._heartbeat(Deadline(deadline.left_s(_INTRODUCE_S))).values():
            if not isinstance(error, SourceUnavailable):
                raise error
            _log.warning("a broker does not get this member's heartbeats yet: %s", error)
            self._upkeep.soon(self._heartbeats)

    def start(self) -> None:
        """Start the thread. Call it once brokers and the coordinator know this member."""
        self._on = True
        self._upkeep.start()

    def stop(self, timeout_s: float) -> None:
        """End. Idempotent."""
        self._on = False
        self._upkeep.stop(timeout_s)

    # ---- triggers
    def noticed(self, notice: Notice) -> None:
        """Look for foreign members soon if a broker reports a change of the group. On a connection's thread."""
        if self._on and notice.code == codes.FromBroker.CONSUMER_IDS_CHANGED:
            self._upkeep.soon(self._others)

    def broker_was_away(self) -> None:
        """Send heartbeats and look at routes soon: a broker that was away does not know this member any more, and the
        route may have changed."""
        if self._on:
            self._upkeep.soon(self._heartbeats, self._routes)

    def note_soon(self) -> None:
        """Store the marks of logs soon. For the first mark of a log."""
        if self._on:
            self._upkeep.soon(self._marks)

    def look_now(self) -> None:
        """Do all duties now."""
        self._upkeep.soon()

    # ---- duties
    def beat(self, deadline: Deadline) -> None:
        """Send heartbeats. Raises SourceError, so that the duty is repeated soon."""
        for error in self._heartbeat(deadline).values():
            raise error

    def _heartbeat(self, deadline: Deadline) -> Mapping[str, SourceError]:
        consumer = Consumer(group=self._settings.group, subscriptions=tuple(self._topics.subscriptions))
        return self._client.heartbeat([consumer], deadline)

    def look_at_routes(self, deadline: Deadline) -> None:
        """Look at the routes of all topics, and offer the queues to the coordinator. Raises SourceError: some topics'
        routes are not known now; the queues of the others are offered all the same."""
        before = set(self._topics.queues)
        try:
            self._topics.look(deadline)
        finally:
            self._seat.offer(after := self._topics.queues)
        if gone := [queue for queue in self._topics.gone if queue not in after]:
            self._queues.forget_marks(gone)  # if it raises, `topics.gone` is kept and the next look repeats it
            self._client.forget(gone)
            _log.warning(
                "given up, since no name server has listed them for ten minutes: %s", ", ".join(map(str, gone))
            )
        self._topics.gone.clear()
        for topic, broker in sorted(self._topics.closed):
            if self._told.due((topic, broker)):
                _log.warning(
                    "%s at %s stands still: it may not be read (perm of the topic: mqadmin updateTopicPerm -p 6; or "
                    "brokerPermission of the broker)",
                    topic,
                    broker,
                )
        for queue in before.difference(after).difference(gone):
            try:
                left = f"{self._queues.commits.offsets.unread(queue, deadline)} of its messages were not read"
            except SourceError as error:
                left = f"how many of its messages were not read is not known ({error})"
            _log.warning("%s cannot be read any more: its broker does not list it; %s", queue, left)

    def _look_for_foreign_members(self, deadline: Deadline) -> None:
        found = self._foreign_members.look(deadline)
        if found:
            self._inbox.post(Alarm(self._foreign_members.error(found)))
