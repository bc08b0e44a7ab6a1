"""Which queues a source reads, and what it says where it cannot find out."""

from __future__ import annotations

import pytest

from holdfast.adapters.rocketmq.remoting import RemotingClient
from holdfast.adapters.rocketmq.topics import Topics
from holdfast.errors import SourceUnavailable
from holdfast.timing import Deadline
from tests.unit.test_rocketmq_connection import unused_address


def test_a_name_server_that_is_not_there_is_told_by_the_topic_that_somebody_has_named() -> None:
    address = unused_address()
    with RemotingClient(address) as client:
        topics = Topics(client, "billing", {})
        topics.choose(["orders"])
        with pytest.raises(SourceUnavailable, match=rf"the route of orders.*{address}") as caught:
            topics.look(Deadline(5.0), first=True)
    assert "%RETRY%" not in str(caught.value)
