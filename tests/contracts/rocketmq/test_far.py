"""A name server that is far away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.timing import Deadline
from tests.harness.far import Far
from tests.harness.rocketmq_field import PATIENCE_S, Field, numbered

if TYPE_CHECKING:
    from tests.harness.servers.rocketmq import RocketMQServer

#: Asked for one after the other, their routes would take longer than a look at them may.
_TOPICS = 30
_ROUND_TRIP_S = 0.2


def test_all_of_many_topics_are_read_and_so_are_queues_that_are_added(rocketmq: RocketMQServer, redis_url: str) -> None:
    with Far(int(rocketmq.namesrv.rpartition(":")[2]), _ROUND_TRIP_S) as far, Field(rocketmq, redis_url) as field:
        topics = [f"{field.topic}-{number}" for number in range(_TOPICS)]
        for topic in topics:
            field.create(topic, 2)
            field.produce(*numbered(f"{topic} a", 2), topic=topic)
        app = field.app(topics=topics, namesrv=f"127.0.0.1:{far.port}", lease_s=10.0, poll_name_server_interval_s=1.0)
        field.wait_handled(*(value for topic in topics for value in numbered(f"{topic} a", 2)))
        assert len(app.owns) == 2 * _TOPICS
        for topic in topics:
            field.admin.create_topic(topic, Deadline(PATIENCE_S), queues=3)
        field.wait(lambda: len(app.owns) == 3 * _TOPICS)
        field.produce(*numbered("b", 3), topic=topics[-1])
        field.wait_handled(*numbered("b", 3))
