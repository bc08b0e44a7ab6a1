"""What "latest" means while a broker is away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.rocketmq.offsets import StartingOffsets
from holdfast.adapters.rocketmq.settings import PullSettings
from holdfast.errors import SourceUnavailable
from holdfast.records import Partition
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

READ, NEW = [[Partition(topic, 0, broker) for broker in ("a", "b")] for topic in ("read", "new")]


class Brokers:
    """Offsets as far as brokers answer; each log is from 0 to 100."""

    def __init__(self, committed: Mapping[Partition, int | None]) -> None:
        self._committed = committed

    def committed_of_some(self, queues: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int | None]:
        return {queue: self._committed[queue] for queue in queues if queue in self._committed}

    def first(self, queue: Partition, start: str, start_ms: int, deadline: Deadline) -> int:
        return 100 if start == "latest" else 0


def latest(committed: Mapping[Partition, int | None]) -> StartingOffsets:
    settings = PullSettings(namesrv="a:1", group="g", consume_from_where="latest")
    return StartingOffsets(Brokers(committed), settings)  # type: ignore[arg-type]


def test_a_topic_that_has_an_offset_at_one_broker_is_no_new_one() -> None:
    starting_offsets = latest({READ[0]: 7})
    starting_offsets.look(READ, Deadline(60.0))
    assert starting_offsets.of(READ[1], Deadline(60.0)) == 0


def test_where_all_have_none_it_begins_at_the_end() -> None:
    starting_offsets = latest({READ[0]: 7, READ[1]: None, NEW[0]: None, NEW[1]: None})
    starting_offsets.look([*READ, *NEW], Deadline(60.0))
    assert starting_offsets.of_some([*READ, *NEW], Deadline(60.0)) == dict.fromkeys(READ, 0) | dict.fromkeys(NEW, 100)


def test_what_only_a_broker_that_is_away_can_know_is_waited_for() -> None:
    with pytest.raises(SourceUnavailable, match="new-b-0"):
        latest({NEW[0]: None}).look(NEW, Deadline(60.0))
