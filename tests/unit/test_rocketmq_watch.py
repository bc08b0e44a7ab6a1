"""What a start waits for."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.adapters.rocketmq import watch as module
from holdfast.adapters.rocketmq.settings import PullSettings
from holdfast.adapters.rocketmq.watch import Watch
from holdfast.errors import SourceUnavailable, UnknownTopic
from holdfast.timing import Deadline


class Silent:
    """Name servers that have said what they know, and are silent from then on."""

    def __init__(self, client: object) -> None:
        pass

    def cluster(self, deadline: Deadline) -> Any:
        raise SourceUnavailable("no name server answers")


def test_it_ends_with_the_topic_that_it_waited_for_also_where_nobody_answers_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "Admin", Silent)
    nothing = cast("Any", None)
    watch = Watch(
        nothing,
        nothing,
        PullSettings(namesrv="127.0.0.1:9876", group="g"),
        topics=nothing,
        place=nothing,
        offsets=cast("Any", SimpleNamespace(look=None)),
        logs=nothing,
        changed=threading.Condition(),
    )

    def look() -> None:
        raise UnknownTopic("orders")

    with pytest.raises(UnknownTopic, match="orders"):
        watch.insist(look, Deadline(0.01))
