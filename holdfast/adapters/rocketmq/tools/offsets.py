"""A group's offsets at RocketMQ, looked at and set while nobody consumes: `tools.ports.OffsetTool`.

A reset on RocketMQ has three parts: UNIQ_KEY claims of what is to run again are forgotten, then the offsets are set
(222), then the positions. In that order: killed anywhere, the command finds the same again. RocketMQ refuses no reset
of a live group, so the members are asked for once more when the positions are ours, where who joins waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.group_settings import group_settings
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
    """One thread. RocketMQ lets anybody set the offsets of a group that is at work: whoever calls looks first."""

    def committed(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, Committed | None]:
        """The group's committed offsets, which carry no mark; None = none."""
        found = {each: self.client.query_offset(each, self.group, deadline) for each in partitions}
        return {
            each: None if offset is None else Committed(offset, ours=True, marked=False)
            for each, offset in found.items()
        }

    def retry_lags(self, topic: str, deadline: Deadline) -> Mapping[str, int]:
        """Ask about the group's retry topic, where records of all its topics wait, and those of POP."""
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
        """The members that any broker that we know of sees in the group: of whatever client. A member whose connection
        was not closed counts for 120 s. Whoever consumes by a proxy is no member that a broker knows, but leaves traces
        there: somebody waits in a pop, or has asked in the last minutes."""
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
        """UNIQ_KEYs with the checksums of bodies: RocketMQSource claims them where the handler names no key."""
        for _, messages in self.messages(starts, ends, patience_s):
            yield [identity_of(each.unique_key, _body(each)) for each in messages if each.unique_key]

    def set(self, offsets: Mapping[Partition, int], deadline: Deadline) -> None:
        """Reset (code 222): it counts at once, whatever is committed later by who does not know of it, and the group's
        next pull is told. Raises SourceError; a part of it may be done."""
        admin = Admin(self.client)
        for broker in sorted({queue.broker for queue in offsets}):
            group_settings(self.client, self.group, broker, deadline)
        for queue, offset in offsets.items():
            admin.reset(self.group, queue, offset, deadline)
            if (found := self.client.query_offset(queue, self.group, deadline)) != offset:
                raise SourceError(
                    f"{queue.broker} says that it has reset {self.group} in {queue} to {offset}, and has {found}: with "
                    f"useServerSideResetOffset=false it leaves that to members, and there are none. Switch it on for "
                    f"the reset: mqadmin updateBrokerConfig -k useServerSideResetOffset -v true"
                )


def _body(message: StoredMessage) -> bytes:
    """The value of its record."""
    try:
        return message.body
    except Malformed:
        return message.raw_body
