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
    def __init__(self, topic_id: str) -> None:
        self.topic_id = topic_id

    def of_each(self, topics: list[str], deadline: Deadline) -> dict[str, str]:
        assert not deadline.passed
        return dict.fromkeys(topics, self.topic_id)


def made(topic_id: str = "now", store: str = "ours") -> CommitMark:
    mark = CommitMark("g", cast("Any", Ids(topic_id)), lambda: store)
    mark.position_names([P], Deadline(60.0))
    return mark


def read(mark: CommitMark, metadata: str | None, offset: int = 7) -> Committed | None:
    # Not the client's own value: a broker may send what that cannot be made with.
    return mark.read(cast("Any", SimpleNamespace(topic="orders", offset=offset, metadata=metadata)))


@pytest.mark.parametrize("topic_id", ["", "now"])
@pytest.mark.parametrize("store", ["", "ours"])
def test_what_we_commit_is_ours_with_that_very_offset_only(topic_id: str, store: str) -> None:
    mark = made(topic_id, store)
    [committed] = mark.on({P: 7})
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


def test_a_partition_that_was_not_named_anew_commits_under_the_id_that_it_had() -> None:
    other = Partition("orders", 1)
    ids = Ids("before")
    mark = CommitMark("g", cast("Any", ids), lambda: "")
    mark.position_names([P, other], Deadline(60.0))
    ids.topic_id = "now"
    mark.position_names([other], Deadline(60.0))
    committed = {each.partition: each for each in mark.on({P: 7, other: 7})}
    assert read(mark, committed[0].metadata) is None  # an offset of the log that is gone
    assert read(mark, committed[1].metadata) == Committed(7, ours=True)


def test_a_topic_whose_id_appears_or_goes_is_the_same_topic() -> None:
    [without] = made("").on({P: 7})
    [with_one] = made("now").on({P: 7})
    assert (
        read(made("now"), without.metadata)
        == read(made(""), with_one.metadata)
        == Committed(7, ours=True, store="ours")
    )


def test_no_offset_is_nothing() -> None:
    assert read(made(), "", offset=-1001) is None


@given(st.text())
def test_whatever_anybody_writes_is_read(text: str) -> None:
    found = read(made(), text)
    assert found is None or found.offset == 7
