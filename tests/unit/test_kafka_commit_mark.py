"""Which committed offsets are ours: what the metadata may say, by us, by earlier versions and by anybody."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.kafka.commit_mark import CommitMark
from holdfast.plugin.ports import Committed
from holdfast.records import Partition
from holdfast.timing import Deadline

P = Partition("orders", 0)


class Ids:
    def __init__(self, topic_id: str, cluster: str = "here") -> None:
        self.topic_id, self.cluster = topic_id, cluster

    def of_each(self, topics: list[str], deadline: Deadline) -> dict[str, str]:
        assert not deadline.passed
        return dict.fromkeys(topics, self.topic_id)


def made(topic_id: str = "now", store: str = "ours", cluster: str = "here") -> CommitMark:
    mark = CommitMark("g", cast("Any", Ids(topic_id, cluster)), lambda: store)
    mark.position_names([P], Deadline(60.0))
    return mark


def read(mark: CommitMark, metadata: str | None, offset: int = 7) -> Committed | None:
    # Not the client's own value: a broker may send what that cannot be made with.
    return mark.read(cast("Any", SimpleNamespace(topic="orders", partition=0, offset=offset, metadata=metadata)))


@pytest.mark.parametrize("topic_id", ["", "now"])
@pytest.mark.parametrize("store", ["", "ours"])
@pytest.mark.parametrize("cluster", ["", "here", "named:by:hand"])
def test_what_we_commit_is_ours_with_that_very_offset_only(topic_id: str, store: str, cluster: str) -> None:
    mark = made(topic_id, store, cluster)
    [committed] = mark.marked({P: 7})
    assert read(mark, committed.metadata) == Committed(7, ours=True, store=store)
    assert read(mark, committed.metadata, offset=8) == Committed(8, ours=False)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ("holdfast:1:7:now", Committed(7, ours=True)),
        ("holdfast:1:7:", Committed(7, ours=True)),
        ("holdfast:1:7:now:", Committed(7, ours=True)),
        ("holdfast:1:7::theirs", Committed(7, ours=True, store="theirs")),
        ("holdfast:1:7:now:theirs", Committed(7, ours=True, store="theirs")),
        ("holdfast:1:7:now:theirs:more", Committed(7, ours=True, store="theirs")),
        ("holdfast:1:7:now:theirs:here:more", Committed(7, ours=True, store="theirs")),
        ("holdfast:1:7:now:theirs:there", Committed(7, ours=True, store="theirs")),  # it got another name
        ("holdfast:1:7:before:theirs:here", None),
        ("holdfast:1:7:before:theirs", None),
        ("holdfast:1:7:before", None),
        ("holdfast:1:6:now:ours", Committed(7, ours=False)),
        ("holdfast:2:7:now:ours", Committed(7, ours=False)),
        ("xholdfast:1:7:now:ours", Committed(7, ours=False)),
        ("", Committed(7, ours=False)),
        (None, Committed(7, ours=False)),
    ],
)
def test_marks_of_earlier_and_later_versions_and_of_other_stores_are_no_reset(
    metadata: str | None, expected: Committed | None
) -> None:
    assert read(made(), metadata) == expected


@pytest.mark.parametrize("there", ["", "before"], ids=["topics there have no ids", "topics there have ids"])
@pytest.mark.parametrize("here", ["", "now"], ids=["topics here have no ids", "topics here have ids"])
@pytest.mark.parametrize("offset", [7, 5], ids=["offsets are the same", "offsets are translated"])
def test_what_was_copied_from_another_cluster_with_its_metadata_is_honoured_and_told_once(
    there: str, here: str, offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As MirrorMaker does (sync.group.offsets)."""
    [copied] = made(there, cluster="there").marked({P: 7})
    mark = made(here)
    for _ in range(2):
        assert read(mark, copied.metadata, offset) == Committed(offset, ours=False)
        mark.log_decisions()
    [line] = caplog.messages
    assert "orders-0" in line
    assert "from the cluster there to here: it is honoured" in line


def test_what_was_copied_and_translated_is_honoured_also_where_no_cluster_is_named() -> None:
    """An earlier version has committed it."""
    assert read(made(), "holdfast:1:7:before:theirs", 5) == Committed(5, ours=False)


def test_a_commit_of_a_topic_that_was_deleted_since_is_told_to_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    mark = made()
    for number in range(8):
        reply = SimpleNamespace(topic="orders", partition=number, offset=7, metadata="holdfast:1:7:before:ours:here")
        assert mark.read(cast("Any", reply)) is None
    mark.log_decisions()
    [line] = caplog.messages
    assert "orders-0, orders-1, orders-2, orders-3, orders-4 and 3 more, group g" in line
    assert "deleted topic of the same name: it is ignored" in line


def test_a_partition_that_was_not_named_anew_commits_under_the_id_that_it_had() -> None:
    other = Partition("orders", 1)
    ids = Ids("before")
    mark = CommitMark("g", cast("Any", ids), lambda: "")
    mark.position_names([P, other], Deadline(60.0))
    ids.topic_id = "now"
    mark.position_names([other], Deadline(60.0))
    committed = {each.partition: each for each in mark.marked({P: 7, other: 7})}
    assert read(mark, committed[0].metadata) is None  # an offset of the log that is gone
    assert read(mark, committed[1].metadata) == Committed(7, ours=True)


def test_a_topic_whose_id_appears_or_goes_is_the_same_topic() -> None:
    [without] = made("").marked({P: 7})
    [with_one] = made("now").marked({P: 7})
    assert (
        read(made("now"), without.metadata)
        == read(made(""), with_one.metadata)
        == Committed(7, ours=True, store="ours")
    )


_IDS = st.sampled_from(["", "one", "two"])


@given(st.tuples(_IDS, _IDS), st.tuples(_IDS, _IDS), st.sampled_from([7, 5]))
def test_no_offset_of_another_log_is_ever_taken_for_ours(
    before: tuple[str, str], now: tuple[str, str], offset: int
) -> None:
    """And what lies in the same log, as far as anybody can know, is never dropped for its ids."""
    [committed] = made(before[0], cluster=before[1]).marked({P: 7})
    found = read(made(now[0], cluster=now[1]), committed.metadata, offset)
    other_topic = bool(before[0] and now[0] and before[0] != now[0])
    other_cluster = bool(before[1] and now[1] and before[1] != now[1])
    same = bool(before[0]) and before[0] == now[0]
    if other_topic or (other_cluster and not same):
        assert found is None or not found.ours
        assert (found is None) == (not other_cluster and offset == 7)
    else:
        assert found == Committed(offset, ours=offset == 7, store="ours" if offset == 7 else "")


def test_no_offset_is_nothing() -> None:
    assert read(made(), "", offset=-1001) is None


@given(st.text())
def test_whatever_anybody_writes_is_read(text: str) -> None:
    found = read(made(), text)
    assert found is None or found.offset == 7
