"""Retry topics and dead letter topics: what keeps the records that wait there, and what does not."""

from __future__ import annotations

import pytest

from holdfast.plugin.retrying.keeping import Keeping, flaws_of_letters, flaws_of_retries
from holdfast.plugin.retrying.retry_topics import delay_in

_WEEK_S = 7 * 86_400.0


@pytest.mark.parametrize(
    ("keeping", "fatal"),
    [
        (Keeping(), []),
        (Keeping(kept_s=_WEEK_S), []),
        (Keeping(compacted=True), [True]),
        (Keeping(compacted=True, kept_s=60), [True, True]),
        (Keeping(kept_s=600), [True]),
        (Keeping(kept_s=601), [True]),  # it may be read a second late
        (Keeping(kept_s=602), [False]),
        (Keeping(kept_s=600 + 3_600), []),
        (Keeping(kept_bytes=1_000), [False]),
    ],
)
def test_a_retry_topic_keeps_its_records_until_they_are_due(keeping: Keeping, fatal: list[bool]) -> None:
    assert [flaw.fatal for flaw in flaws_of_retries("orders.billing.retry.10min", 600, keeping)] == fatal


def test_of_compacted_dead_letters_some_are_lost() -> None:
    assert [flaw.fatal for flaw in flaws_of_letters("orders.dlq", Keeping(compacted=True))] == [False]
    assert not list(flaws_of_letters("orders.dlq", Keeping(kept_s=60)))


@pytest.mark.parametrize(
    ("topic", "delay_s"),
    [
        ("orders.billing.retry.10s", 10.0),
        ("a.b.billing.retry.2min", 120.0),
        ("orders.shipping.retry.10s", None),
        ("orders.billing.retry.soon", None),
        ("orders", None),
    ],
)
def test_a_retry_topic_is_known_by_its_name(topic: str, delay_s: float | None) -> None:
    assert delay_in(topic, "billing") == delay_s
