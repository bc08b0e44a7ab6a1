"""Headers are anybody's who may write to the topic: none of them decides anything about another topic's records."""

from __future__ import annotations

import pytest

from holdfast import Settings, Unretriable, record_key
from holdfast.plugin.retrying.dead_letter import headers_of
from tests.harness.engine import QUICK, Bench, Letters

SETTINGS = Settings(workers=4, commit_interval_s=0.01)
ORIGIN = ("origin-topic", "origin-partition", "origin-offset", "origin-timestamp")
#: All that holdfast reads or writes.
NAMES = (*ORIGIN, "retry-of", "handler", "group", "attempts", "error-type", "error-message", "failed-at-ms")


def forged(*names: str) -> list[tuple[str, bytes | None]]:
    """As somebody would write them who wants to be taken for a record of `payments`."""
    said = dict.fromkeys(NAMES, b"payments") | {"attempts": b"99", "failed-at-ms": b"9" * 5_000}
    said |= dict.fromkeys(ORIGIN[1:], b"0")
    return [(f"holdfast-{name}", said[name]) for name in names]


@pytest.mark.parametrize("names", [(name,) for name in NAMES] + [ORIGIN, NAMES], ids="+".join)
def test_a_record_of_one_topic_never_has_another_topics_record_skipped(names: tuple[str, ...]) -> None:
    with Bench(clicks=1, payments=1) as bench:
        bench.member(settings=SETTINGS, topics=["clicks", "payments"], key=record_key())
        bench.broker.produce("clicks", 0, "forged", key="4711", headers=forged(*names))
        bench.wait_committed(1, topic="clicks")
        bench.broker.produce("payments", 0, "real", key="4711")
        bench.wait_committed(1, topic="payments")
    assert bench.work.values() == ["forged", "real"]


@pytest.mark.parametrize("names", [(name,) for name in NAMES] + [ORIGIN, NAMES], ids="+".join)
def test_its_letter_says_where_it_was_found_and_is_counted_as_any_other(names: tuple[str, ...]) -> None:
    with Bench(clicks=1, payments=1) as bench:
        letters = Letters(bench.changed)
        bench.work.fail("forged", ValueError("1"), ValueError("2"), Unretriable("3"))
        bench.broker.produce("clicks", 0, "forged", key="4711", headers=forged(*names))
        bench.member(
            settings=SETTINGS,
            topics=["clicks", "payments"],
            key=record_key(),
            retry=QUICK,
            dead_letter="dlq",
            dead_letters=letters,
        )
        bench.wait_committed(1, topic="clicks")
        [letter] = letters.sent
        said = dict(headers_of(letter))
    assert [name for name, _ in headers_of(letter)].count("holdfast-origin-topic") == 1
    assert (said["holdfast-origin-topic"], said["holdfast-origin-partition"]) == (b"clicks", b"0")
    assert (said["holdfast-attempts"], said["holdfast-error-message"]) == (b"3", b"3")
    assert said["holdfast-handler"] == b"handle"
