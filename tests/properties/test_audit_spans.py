"""Spans of the audit cover exactly what was told, whatever ended in which order."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from holdfast.plugin.audit.schema import COVERING, Outcome, Span
from holdfast.plugin.audit.spans import SpanMerger

_RECORDS = sorted(set(Outcome) - {Outcome.ABSENT, Outcome.EXPIRED})
_TIMES = st.tuples(st.integers(0, 50), st.integers(50, 99))
_RANGE = st.tuples(st.integers(0, 40), st.integers(1, 5)).map(lambda each: range(each[0], sum(each)))


def _added(merger: SpanMerger, told: list[tuple[Outcome, range, tuple[int, int]]]) -> Counter[tuple[Outcome, int]]:
    for outcome, offsets, times in told:
        merger.add(outcome, offsets, times)
    return Counter((outcome, offset) for outcome, offsets, _ in told for offset in offsets)


def _offsets(span: Span) -> range:
    assert span.first is not None
    assert span.next is not None
    return range(span.first, span.next)


@given(st.lists(st.tuples(st.sampled_from(_RECORDS), _RANGE, _TIMES)))
def test_every_outcome_of_every_offset_is_told_as_often_as_it_was(
    told: list[tuple[Outcome, range, tuple[int, int]]],
) -> None:
    merger = SpanMerger()
    expected = _added(merger, told)
    spans = merger.take()
    assert Counter((span.outcome, offset) for span in spans for offset in _offsets(span)) == expected
    assert all(span.records == len(_offsets(span)) for span in spans)
    assert [span.first for span in spans] == sorted(span.first or 0 for span in spans)
    if told:
        assert min(span.began_ms for span in spans) == min(times[0] for _, _, times in told)
        assert max(span.ended_ms for span in spans) == max(times[1] for _, _, times in told)
    assert merger.take() == []


@given(
    # A log: at each offset nothing, or a record with some outcome; what ends comes in any order.
    st.lists(st.sampled_from([None, *_RECORDS]), max_size=30).flatmap(
        lambda log: st.tuples(st.just(log), st.permutations(range(len(log))))
    )
)
def test_holes_of_the_log_are_covered_and_never_counted(drawn: tuple[list[Outcome | None], list[int]]) -> None:
    log, order = drawn
    merger = SpanMerger()
    for offset in order:
        merger.add(log[offset] or Outcome.ABSENT, range(offset, offset + 1), (0, 0))
    spans = merger.take()
    covered = Counter(offset for span in spans for offset in _offsets(span))
    assert covered == Counter(range(len(log)))
    for span in spans:
        inside = [log[offset] for offset in _offsets(span)]
        assert set(inside) <= {None, span.outcome}
        assert span.records == sum(outcome is not None for outcome in inside)
        assert span.outcome is not Outcome.ABSENT or inside == [None] * len(inside)


@given(
    # A log with holes, and what was told of each record: attempts that failed, and later how it ended, or not yet.
    st.lists(st.one_of(st.none(), st.lists(st.sampled_from(_RECORDS), min_size=1, max_size=3)), max_size=12).flatmap(
        lambda log: st.tuples(
            st.just(log),
            st.permutations([(at, each) for at, told in enumerate(log) for each in told or [Outcome.ABSENT]]),
        )
    )
)
def test_no_hole_goes_with_what_covers_nothing(
    drawn: tuple[list[list[Outcome] | None], list[tuple[int, Outcome]]],
) -> None:
    """Whose attempts fail on both sides of a hole has not lost what lies in it."""
    log, told = drawn
    merger = SpanMerger()
    for offset, outcome in told:
        merger.add(outcome, range(offset, offset + 1), (0, 0))
    spans = merger.take()
    covered = {offset for span in spans if span.outcome in COVERING for offset in _offsets(span)}
    assert covered == {at for at, each in enumerate(log) if each is None or COVERING & set(each)}
    counted = Counter[Outcome]()
    for span in spans:
        counted[span.outcome] += span.records
    assert +counted == Counter(outcome for _, outcome in told if outcome is not Outcome.ABSENT)


@given(st.lists(st.tuples(st.sampled_from(_RECORDS), st.integers(1, 5), _TIMES)))
def test_records_without_offsets_are_counted_by_outcome(told: list[tuple[Outcome, int, tuple[int, int]]]) -> None:
    merger = SpanMerger()
    for each in told:
        merger.count(*each)
    spans = merger.take()
    counted: Counter[Outcome] = Counter()
    for outcome, records, _ in told:
        counted[outcome] += records
    assert {span.outcome: span.records for span in spans} == counted
    assert all((span.first, span.next) == (None, None) for span in spans)


def test_records_that_end_one_after_the_other_are_one_span_however_many_they_are() -> None:
    merger = SpanMerger()
    for offset in range(10_000):
        merger.add(Outcome.HANDLED, range(offset, offset + 1), (1, 2))
    [span] = merger.take()
    assert (_offsets(span), span.records) == (range(10_000), 10_000)


def test_of_a_log_that_is_half_holes_there_is_one_span_and_quickly() -> None:
    merger = SpanMerger()
    for offset in range(0, 200_000, 2):
        merger.add(Outcome.HANDLED, range(offset, offset + 1), (1, 2))
        merger.add(Outcome.ABSENT, range(offset + 1, offset + 2), (1, 2))
    spans = merger.take()
    assert [(_offsets(span), span.records) for span in spans] == [
        (range(199_999), 100_000),
        (range(199_999, 200_000), 0),
    ]
