"""What an operator switches off for a while holds members up, and ends none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.rocketmq.remoting import codes
from holdfast.plugin.events import SourceTrouble
from holdfast.timing import Deadline
from tests.harness.rocketmq_field import PATIENCE_S, Field, numbered

if TYPE_CHECKING:
    from tests.harness.servers.rocketmq import RocketMQServer


def switch(field: Field, what: str, *, on: bool) -> None:
    if what == "group":
        field.admin.create_group(field.group, Deadline(PATIENCE_S), consume_enable=on)
    else:
        perm = codes.PERM_WRITE | (codes.PERM_READ if on else 0)
        field.admin.create_topic(field.topic, Deadline(PATIENCE_S), queues=4, perm=perm)


@pytest.mark.parametrize("what", ["group", "topic"])
def test_reading_pauses_is_told_and_goes_on(rocketmq: RocketMQServer, redis_url: str, what: str) -> None:
    with Field(rocketmq, redis_url) as field:
        # The route says so too, but not at once: queues are asked for until then.
        app = field.app(poll_name_server_interval_s=30.0)
        field.produce(*numbered("a", 8))
        field.wait_handled(*numbered("a", 8))
        queues = field.queues()
        switch(field, what, on=False)
        field.wait(lambda: any("code 16" in each.error and "mqadmin" in each.error for each in app.told(SourceTrouble)))
        switch(field, what, on=True)
        field.wait(lambda: field.queues() == queues)
        field.produce(*numbered("b", 8))
        field.wait_handled(*numbered("b", 8))
        field.wait_committed()
    assert sorted(field.values()) == sorted([*numbered("a", 8), *numbered("b", 8)])


def test_a_start_waits_for_it_too(rocketmq: RocketMQServer, redis_url: str) -> None:
    with Field(rocketmq, redis_url) as field:
        switch(field, "group", on=False)
        field.produce(*numbered("a", 4))
        app = field.app()
        field.wait(lambda: any("consumeEnable=false" in each.error for each in app.told(SourceTrouble)))
        switch(field, "group", on=True)
        field.wait_handled(*numbered("a", 4))


def test_a_topic_that_is_closed_from_the_start_is_told_and_the_others_begin(
    rocketmq: RocketMQServer, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Field(rocketmq, redis_url) as field:
        other = f"{field.topic}-other"
        field.create(other, 2)
        field.produce(*numbered("a", 4))
        switch(field, "topic", on=False)
        field.wait(lambda: not field.queues())
        field.produce(*numbered("b", 4), topic=other)
        field.app(topics=[field.topic, other], poll_name_server_interval_s=0.5)
        field.wait_handled(*numbered("b", 4))
        field.wait(lambda: f"{field.topic} at broker-a stands still" in caplog.text)
        switch(field, "topic", on=True)
        field.wait_handled(*numbered("a", 4))
