"""Questions to brokers by a deadline that is longer than the client can wait for one answer, or that never comes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from holdfast.adapters.kafka.admin import Admin, request_s
from holdfast.adapters.kafka.topic_ids import TopicIds
from holdfast.adapters.kafka.topic_keeping import keeping_of
from holdfast.errors import SourceUnavailable
from holdfast.timing import Deadline

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
#: `Settings.startup_timeout_s` may be as long, and endless.
LONG = pytest.mark.parametrize("deadline_s", [3_601.0, math.inf])


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(*_: Any) -> Any:
        raise SourceUnavailable("nobody is there")

    monkeypatch.setattr(Admin, "answer", answer)
    monkeypatch.setattr(Admin, "reach", lambda *_: "a cluster")


@LONG
def test_how_topics_keep_their_records(deadline_s: float) -> None:
    [told] = keeping_of(Admin(NOBODY), ["orders.dlq"], Deadline(deadline_s)).values()
    assert isinstance(told, SourceUnavailable)


@LONG
def test_the_ids_of_topics(deadline_s: float) -> None:
    with pytest.raises(SourceUnavailable):
        TopicIds(Admin(NOBODY)).of(["orders"], Deadline(deadline_s))


@LONG
def test_a_call_that_blocks_gets_a_time_that_the_client_can_count(deadline_s: float) -> None:
    assert request_s(Deadline(deadline_s)) * 1000 < 1 << 31
