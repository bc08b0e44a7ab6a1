"""Whatever brokers answer and in whichever order: each offset comes once, in the log's order, and none is left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.rocketmq.pull_window import PullWindow
from holdfast.adapters.rocketmq.remoting import PullAnswer, PullStatus


def answer(next_offset: int, end: int) -> PullAnswer:
    return PullAnswer(PullStatus.FOUND, next_offset, 0, end, b"x", "a:1", 0, None)


@given(st.data(), st.integers(0, 300), st.sampled_from([1, 4, 8]))
def test_answers_in_any_order_and_of_any_size_give_the_log_once(data: st.DataObject, end: int, batch: int) -> None:
    window = PullWindow(0)
    under_way: list[tuple[int, int]] = []
    read = most = 0
    while read < end:
        while (at := window.begin(data.draw(st.integers(1, 40)))) is not None:
            under_way.append((window.turn, at))
        live = [each for each in under_way if each[0] == window.turn]
        assert live, "it stands still"
        most = max(most, len(live))
        turn, asked = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
        if turn != window.turn:
            continue  # as who pulls does: what is answered to an earlier turn does not count
        size = data.draw(st.sampled_from([batch, batch, batch, 1, batch - 1]))
        for start, each in window.answered(asked, answer(min(asked + size, end), end)):
            assert start == read
            read = each.next_offset
        assert window.next == read
        if data.draw(st.integers(0, 20)) == 0:
            window.restart(read)
    assert read == end
    assert most <= 3
