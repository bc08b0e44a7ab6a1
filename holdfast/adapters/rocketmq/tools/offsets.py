"""Reads and sets a group's offsets at RocketMQ while the group has no members: `tools.ports.OffsetTool`.

A reset has three steps, in this order: forget the UNIQ_KEY claims of messages that shall run again, set the offsets
(request 222), set the positions in the store. If the command is killed at any point, it can be repeated. RocketMQ does
not refuse a reset of a group with members. Therefore the command checks for members once more after it has taken the
positions: a member that joins then waits for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.names import pop_retry_topics, retry_topic
from holdfast.adapters.rocketmq.pop_view import given_out
from holdfast.adapters.rocketmq.remoting import Admin, Malformed, codes
from holdfast.adapters.rocketmq.tools.topics import TopicView
from holdfast.adapters.rocketmq.unique_keys import identity_of
from holdfast.errors import SourceError, UnknownTopic
from holdfast.plugin.ports import Committed
from holdfast.tools.ports import GroupMember

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.adapters.rocketmq.remoting import StoredMessage
    from holdfast.records import Partition
    from holdfast.timing import Deadline


class RocketMQOffsetTool(TopicView):
    """Reads and sets offsets. One thread. RocketMQ accepts a reset while members consume: the caller checks first."""

    def committed(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, Committed | None]:
        """The group's committed offsets, without metadata; None: there is none."""
        found = {each: self.client.query_offset(each, self.group, deadline) for each in partitions}
        return {
            each: None if offset is None else Committed(offset, ours=True, marked=False)
            for each, offset in found.items()
        }

    def retry_lags(self, topic: str, deadline: Deadline) -> Mapping[str, int]:
        """Retry topic -> waiting messages: the group's own, which has those of all its topics, and the POP ones."""
        lags: dict[str, int] = {}
        for name in (retry_topic(self.group), *pop_retry_topics(self.group, topic)):
            try:
                queues = self.partitions(name, deadline)
            except UnknownTopic:
                continue
            at = {each: self.client.query_offset(each, self.group, deadline) for each in queues}
            firsts, lasts = self.first_offsets(queues, deadline), self.last_offsets(queues, deadline)
            lags[name] = sum(max(lasts[each] - max(at[each] or 0, firsts[each]), 0) for each in queues)
        return lags

    def members(self, partitions: Sequence[Partition], deadline: Deadline) -> Sequence[GroupMember]:
        """The members that any known broker lists, of any kind of client. A member that did not close its connection is
        listed for 120 s. Consumers behind a proxy are not listed; they are found by a waiting pop, or by a subscription
        of the last minutes (see `pop_view`)."""
        admin, brokers = Admin(self.client), self.client.broker_names()
        seen = [admin.connections(broker, self.group, deadline) for broker in brokers]
        found = {each.client_id: each for known in seen if known is not None for each in known.members}
        if found:
            return [GroupMember(name, each.address, each.language, ()) for name, each in sorted(found.items())]
        masters = {
            name: members[codes.MASTER]
            for name, members in admin.cluster(deadline).brokers.items()
            if codes.MASTER in members
        }
        if given_out(self.client, self.group, partitions, masters, deadline):
            return [GroupMember("one that consumes by message (gRPC, pop)", "a proxy, or by itself", "", ())]
        return []

    def identities(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int], patience_s: float
    ) -> Iterator[Sequence[str]]:
        """The identities (UNIQ_KEY and checksum) by which RocketMQSource claims messages if the handler has no key."""
        for _, messages in self.messages(starts, ends, patience_s):
            yield [identity_of(each.unique_key, _body(each)) for each in messages if each.unique_key]

    def set(self, offsets: Mapping[Partition, int], deadline: Deadline) -> None:
        """Reset offsets (request 222). A reset takes effect at once: the broker ignores commits until the group's next
        pull, which is answered by the reset. Raises SourceError; some queues may be reset already."""
        admin = Admin(self.client)
        for broker in sorted({queue.broker for queue in offsets}):
            admin.group_settings(self.group, broker, deadline)
        for queue, offset in offsets.items():
            admin.reset(self.group, queue, offset, deadline)
            if (found := self.client.query_offset(queue, self.group, deadline)) != offset:
                raise SourceError(
                    f"{queue.broker} says that it has reset {self.group} in {queue} to {offset}, and has {found}: with "
                    f"useServerSideResetOffset=false it leaves that to members, and there are none. Switch it on for "
                    f"the reset: mqadmin updateBrokerConfig -k useServerSideResetOffset -v true"
                )


def _body(message: StoredMessage) -> bytes:
    """The value of the message's record."""
    try:
        return message.body
    except Malformed:
        return message.raw_body
