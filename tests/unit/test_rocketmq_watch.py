"""What a start waits for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.adapters.rocketmq import watch as module
from holdfast.adapters.rocketmq.inbox import Inbox
from holdfast.adapters.rocketmq.settings import PullSettings
from holdfast.adapters.rocketmq.watch import Watch
from holdfast.errors import SourceUnavailable, UnknownTopic
from holdfast.records import Partition
from holdfast.timing import Deadline


class Silent:
    """Name servers that have said what they know, and are silent from then on."""

    def __init__(self, client: object) -> None:
        pass

    def cluster(self, deadline: Deadline) -> Any:
        raise SourceUnavailable("no name server answers")


def queues_of(unread: Any = None, forgotten: list[Partition] | None = None) -> Any:
    """Queues of which the upkeep asks this only."""
    commits = SimpleNamespace(look=None, offsets=SimpleNamespace(unread=unread))
    return SimpleNamespace(commits=commits, forget_marks=None if forgotten is None else forgotten.extend)


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
        seat=nothing,
        queues=queues_of(),
        inbox=Inbox(),
    )

    def look() -> None:
        raise UnknownTopic("orders")

    with pytest.raises(UnknownTopic, match="orders"):
        watch.insist(look, Deadline(0.01))


def test_a_queue_that_is_gone_for_good_is_given_up_with_its_mark_and_one_of_which_nothing_is_told_hides_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    deleted, closed, other = (Partition(topic, 0, "a") for topic in ("deleted", "closed", "other"))
    queues, gone, forgotten, offered = [closed, deleted, other], list[Partition](), list[Partition](), list[Any]()

    def look(deadline: Deadline) -> None:
        queues[:] = []
        gone.append(deleted)

    def unread(queue: Partition, deadline: Deadline) -> int:
        if queue == closed:
            raise SourceUnavailable("away")
        return 3

    watch = Watch(
        cast("Any", SimpleNamespace(forget=lambda _: None)),
        cast("Any", None),
        PullSettings(namesrv="127.0.0.1:9876", group="g"),
        topics=cast("Any", SimpleNamespace(queues=queues, gone=gone, closed=frozenset(), look=look)),
        seat=cast("Any", SimpleNamespace(offer=lambda found: offered.append(list(found)))),
        queues=queues_of(unread, forgotten),
        inbox=Inbox(),
    )
    watch.look_at_routes(Deadline(1.0))
    assert (offered, forgotten, gone) == ([[]], [deleted], [])
    assert "deleted-a-0" in caplog.text
    assert "closed-a-0 cannot be read any more: its broker does not list it; how many" in caplog.text
    assert "other-a-0 cannot be read any more: its broker does not list it; 3 of its messages" in caplog.text


def test_what_was_found_is_offered_where_of_other_topics_nothing_is_known() -> None:
    offered: list[Any] = []

    def look(deadline: Deadline) -> None:
        raise SourceUnavailable("orders")

    watch = Watch(
        cast("Any", None),
        cast("Any", None),
        PullSettings(namesrv="127.0.0.1:9876", group="g"),
        topics=cast("Any", SimpleNamespace(queues=["found"], gone=[], closed=frozenset(), look=look)),
        seat=cast("Any", SimpleNamespace(offer=offered.append)),
        queues=queues_of(),
        inbox=Inbox(),
    )
    with pytest.raises(SourceUnavailable, match="orders"):
        watch.look_at_routes(Deadline(1.0))
    assert offered == [["found"]]
