"""Handlers that fail: tried again, to the dead letter, or the end of the app; never a silent skip."""

from __future__ import annotations

import functools
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchOf, DeadLetterLimit, Retry, Settings, Unretriable
from holdfast.errors import DeadLetterError, DeadLetterRefused, HandlerFailed, KeyMissing
from holdfast.plugin.events import DeadLettered, DeadLetterLimitReached, RecordFailed
from holdfast.plugin.retrying.dead_letter import headers_of
from tests.harness.engine import QUICK, Bench, Letters, numbered, partition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.records import Record
    from holdfast.timing import Deadline

SETTINGS = Settings(workers=4, commit_interval_s=0.01)


class Unprintable(Exception):
    """Its text was to be set by somebody who has forgotten to."""

    def __str__(self) -> str:
        raise TypeError("__str__ returned non-string")  # as Python says it


class TestRetries:
    def test_a_record_is_tried_again_until_it_succeeds_and_others_of_its_key_wait(self) -> None:
        with Bench() as bench:
            bench.work.fail("a0", ValueError("1"), ValueError("2"))
            bench.broker.produce("orders", 0, "a0", "a1", key="a")
            member = bench.member(settings=SETTINGS)
            bench.wait_committed(2)
            assert [(what, seen.value) for what, seen in bench.work.story] == [
                ("start", "a0"),
                ("fail", "a0"),
                ("start", "a0"),
                ("fail", "a0"),
                ("start", "a0"),
                ("end", "a0"),
                ("start", "a1"),
                ("end", "a1"),
            ]
            assert [event.attempt for event in member.told(RecordFailed)] == [1, 2]

    def test_other_keys_go_on_while_one_waits_for_its_next_attempt(self) -> None:
        with Bench() as bench:
            bench.work.fail("a", ValueError("once"))
            bench.broker.produce("orders", 0, "a", key="a")
            for value in numbered("b", range(20)):
                bench.broker.produce("orders", 0, value, key=value)
            bench.member(settings=SETTINGS, retry=Retry(attempts=2, wait_initial_s=3600.0, wait_max_s=3600.0))
            bench.wait_ended(*numbered("b", range(20)))
            assert bench.work.starts()["a"] == 1
            assert bench.group.offset(partition()) in (None, 0)

    def test_without_a_dead_letter_the_app_commits_below_the_record_and_stops(self) -> None:
        with Bench() as bench:
            bench.work.fail("x3", *[ValueError("no good")] * 3)
            bench.broker.produce("orders", 0, *numbered("x", range(10)))
            member = bench.member(settings=SETTINGS)
            with pytest.raises(HandlerFailed, match=r"(?s)handle.*orders-0@3.*3 attempts.*no good") as caught:
                member.join()
            assert isinstance(caught.value.__cause__, ValueError)
            assert bench.group.offset(partition()) == 3
            assert bench.work.starts()["x3"] == 3
            assert bench.ids() == []
            # The next start begins with that record, and skips what is done behind it.
            bench.member("b", settings=SETTINGS)
            bench.wait_committed(10)
        assert bench.work.times() == dict.fromkeys(numbered("x", range(10)), 1)

    @pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
    def test_an_exit_in_a_handler_ends_no_worker_in_silence(self, error: BaseException) -> None:
        with Bench() as bench:
            bench.work.fail("x1", error)
            bench.broker.produce("orders", 0, *numbered("x", range(3)))
            member = bench.member(settings=SETTINGS)
            with pytest.raises(HandlerFailed, match=type(error).__name__):
                member.join()
            assert bench.group.offset(partition()) == 1
            assert bench.work.starts()["x1"] == 1

    @pytest.mark.parametrize("limit", [None, DeadLetterLimit(in_a_row=1, pause_s=3600.0)])
    def test_an_error_that_cannot_be_printed_is_tried_again_and_put_away_as_any_other(
        self, limit: DeadLetterLimit | None
    ) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            bench.work.fail("x0", *[Unprintable()] * 3)
            bench.work.fail("x1", *[Unprintable()] * 3)
            bench.broker.produce("orders", 0, "x0", "x1", "x2", key="a")
            member = bench.member(
                settings=SETTINGS, dead_letter="orders.dlq", dead_letters=letters, dead_letter_limit=limit
            )
            bench.wait_committed(1 if limit else 3)
            bench.wait(lambda: not limit or member.told(DeadLetterLimitReached))
            assert member.told(RecordFailed)[0].error == "Unprintable: (its text cannot be had: TypeError)"
        assert letters.values() == ["x0"] if limit else ["x0", "x1"]

    def test_an_error_that_cannot_be_printed_is_why_the_app_stops(self) -> None:
        with Bench() as bench:
            bench.work.fail("x0", *[Unprintable()] * 3)
            bench.broker.produce("orders", 0, "x0")
            member = bench.member(settings=SETTINGS)
            with pytest.raises(HandlerFailed, match="Unprintable"):
                member.join()

    def test_errors_outside_retry_on_are_not_tried_again(self) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            bench.work.fail("a", ValueError())
            bench.work.fail("b", KeyError())
            bench.broker.produce("orders", 0, "a", "b")
            retry = Retry(attempts=3, retry_on=(KeyError,), wait_initial_s=0.001)
            bench.member(settings=SETTINGS, retry=retry, dead_letter="orders.dlq", dead_letters=letters)
            bench.wait_committed(2)
        assert letters.values() == ["a"]
        assert bench.work.starts() == {"a": 1, "b": 2}


class TestCoroutinesThatNobodyAwaits:
    """A lambda around an `async def` is no `async def`: its record must not count as done."""

    def test_of_one_record(self) -> None:
        with Bench() as bench:

            async def handle(record: Record) -> None:
                await bench.work.do_async("a", record)

            bench.broker.produce("orders", 0, "x")
            member = bench.member(settings=SETTINGS, handler=lambda record: handle(record))  # noqa: PLW0108
            with pytest.raises(HandlerFailed, match=r"(?s)returned a coroutine.*async def"):
                member.join()
            assert bench.group.offset(partition()) in (None, 0)

    def test_of_a_run_of_records(self) -> None:
        with Bench() as bench:

            async def handle(record: Record) -> None:
                await bench.work.do_async("a", record)

            bench.broker.produce("orders", 0, *numbered("x", range(20)))
            one_lane = replace(SETTINGS, ordering="partition")
            member = bench.member(settings=one_lane, handler=lambda record: handle(record))  # noqa: PLW0108
            with pytest.raises(HandlerFailed, match=r"(?s)returned a coroutine.*async def"):
                member.join()
            assert bench.group.offset(partition()) in (None, 0)

    def test_of_a_batch(self) -> None:
        with Bench() as bench:

            async def handle(records: Sequence[Record]) -> None: ...

            bench.broker.produce("orders", 0, "x")
            batch = BatchOf(records=1)
            member = bench.member(settings=SETTINGS, handler=lambda records: handle(records), batch=batch)  # noqa: PLW0108
            with pytest.raises(HandlerFailed, match="returned a coroutine"):
                member.join()
            assert bench.group.offset(partition()) in (None, 0)

    def test_a_partial_of_an_async_function_is_awaited(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, "x")
            bench.member(settings=SETTINGS, handler=functools.partial(bench.work.do_async, "a"))
            bench.wait_committed(1)
            assert bench.work.values() == ["x"]


class TestTracebacks:
    def test_the_log_says_once_where_a_handler_fails(self, caplog: pytest.LogCaptureFixture) -> None:
        with Bench() as bench, caplog.at_level(logging.ERROR, "holdfast"):
            letters = Letters(bench.changed)
            for value in numbered("x", range(5)):
                bench.work.fail(value, Unretriable("an adress"))
            bench.broker.produce("orders", 0, *numbered("x", range(5)))
            bench.member(settings=SETTINGS, dead_letter="orders.dlq", dead_letters=letters)
            bench.wait_committed(5)
        [told] = [record for record in caplog.records if record.exc_info]
        assert told.getMessage().startswith("handle failed on orders-0@")
        assert "raise self._failures[seen.value].pop(0)" in caplog.text
        assert "attempts.py" not in caplog.text

    def test_each_letter_has_its_own(self) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            bench.work.fail("x", Unretriable("an adress"))
            bench.broker.produce("orders", 0, "x")
            bench.member(settings=SETTINGS, dead_letter="orders.dlq", dead_letters=letters)
            bench.wait_committed(1)
        told = (dict(headers_of(letters.sent[0]))["holdfast-traceback"] or b"").decode()
        assert "raise self._failures[seen.value].pop(0)" in told
        assert told.endswith("Unretriable: an adress\n")


class TestDeadLetters:
    def test_an_unretriable_record_goes_there_at_once_with_its_reason(self) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            bench.work.fail("bad", Unretriable("cannot be read"))
            bench.broker.produce("orders", 0, "good", "bad")
            member = bench.member(settings=SETTINGS, dead_letter="orders.dlq", dead_letters=letters)
            bench.wait_committed(2)
            assert bench.work.starts()["bad"] == 1
            assert letters.checked == ["orders.dlq"]
            [letter] = letters.sent
            assert (letter.topic, letter.handler, letter.attempts, letter.group) == ("orders.dlq", "handle", 1, "g")
            assert str(letter.reason) == "cannot be read"
            [told] = member.told(DeadLettered)
            assert (told.offset, told.topic, told.attempts) == (1, "orders.dlq", 1)
        assert letters.closed

    def test_it_is_acknowledged_before_the_offset_moves(self) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            letters.hold()
            bench.work.fail("bad", Unretriable("no"))
            bench.broker.produce("orders", 0, "good", "bad", "after")
            bench.member(settings=SETTINGS, dead_letter="orders.dlq", dead_letters=letters)
            bench.wait(lambda: letters.tries == 1)
            bench.wait_ended("after")
            bench.wait_committed(1)
            bench.wait(lambda: bench.position() == (1, {2}))
            assert max(attempt.offset for attempt in bench.group.attempts) == 1
            letters.let_go()
            bench.wait_committed(3)

    def test_those_that_wait_for_their_broker_keep_no_handler_waiting(self) -> None:
        with Bench() as bench:
            letters, bad, good = Letters(bench.changed), numbered("bad", range(10)), numbered("good", range(50))
            letters.hold()
            for value in bad:
                bench.work.fail(value, Unretriable("no"))
            bench.broker.produce("orders", 0, *bad)
            member = bench.member(settings=Settings(workers=2), dead_letter="orders.dlq", dead_letters=letters)
            bench.wait(lambda: letters.tries == 4)
            bench.broker.produce("orders", 0, *good)
            bench.wait_ended(*good)
            assert letters.tries == 4
            letters.let_go()
            bench.wait_committed(60)
            assert sorted(letters.values()) == sorted(bad)
            assert len(member.told(DeadLettered)) == 10

    def test_a_letter_that_is_not_acknowledged_is_sent_again_and_the_handler_is_not_called_again(self) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            letters.fail(DeadLetterError("not now"), OSError("an error of the producer's own"), SystemExit(3))
            bench.work.fail("bad", Unretriable("no"))
            bench.broker.produce("orders", 0, "bad", "next", key="k")
            bench.member(settings=SETTINGS, dead_letter="orders.dlq", dead_letters=letters)
            bench.wait_committed(2)
            assert letters.tries == 4
            assert letters.values() == ["bad"]
            assert bench.work.starts() == {"bad": 1, "next": 1}

    def test_a_target_that_refuses_for_good_stops_the_app_below_the_record(self) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            letters.fail(DeadLetterRefused("too large"))
            bench.work.fail("bad", Unretriable("no"))
            bench.broker.produce("orders", 0, "good", "bad")
            member = bench.member(settings=SETTINGS, dead_letter="orders.dlq", dead_letters=letters)
            with pytest.raises(DeadLetterRefused, match="too large"):
                member.join()
            assert bench.group.offset(partition()) == 1
            assert bench.ids() == []

    def test_those_that_fail_to_close_hide_no_error_and_keep_no_session(self) -> None:
        class Finished(Letters):
            def close(self, deadline: Deadline) -> None:
                super().close(deadline)
                raise OSError("the producer has ended")

        with Bench() as bench:
            letters = Finished(bench.changed)
            letters.fail(DeadLetterRefused("too large"))
            bench.work.fail("bad", Unretriable("no"))
            bench.broker.produce("orders", 0, "bad")
            member = bench.member(settings=SETTINGS, dead_letter="orders.dlq", dead_letters=letters)
            with pytest.raises(DeadLetterRefused, match="too large"):
                member.join()
            assert letters.closed
            assert bench.ids() == []
            assert member.app.snapshot().state == "stopped"

    def test_a_letter_under_way_at_a_revoke_counts_as_in_hand_and_is_sent_once(self) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            letters.hold()
            bench.work.fail("bad", Unretriable("no"))
            bench.broker.produce("orders", 0, "bad", "after", key="k")
            settings = Settings(workers=2, drain_timeout_s=0.02, commit_interval_s=0.01)
            more: dict[str, Any] = {"dead_letter": "orders.dlq", "dead_letters": letters}
            first = bench.member("a", settings=settings, **more)
            bench.wait(lambda: letters.tries == 1)
            second = bench.member("b", settings=settings, **more)
            bench.group.aim({second.source: [partition()]})
            bench.wait(lambda: second.owns and not first.owns)
            assert bench.work.starts()["after"] == 0
            letters.let_go()
            bench.wait_committed(2)
        assert letters.values() == ["bad"]
        assert bench.work.starts() == {"bad": 1, "after": 1}
        assert [seen.member for seen in bench.work.ended] == ["b"]


class TestKeys:
    def test_a_missing_key_is_an_error_that_is_not_tried_again(self) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            bench.broker.produce("orders", 0, '{"id": 1}', '{"other": 1}', "no json")
            bench.member(settings=SETTINGS, key="id", dead_letter="orders.dlq", dead_letters=letters)
            bench.wait_committed(3)
        assert sorted(letters.values()) == ["no json", '{"other": 1}']
        assert all(isinstance(letter.reason, KeyMissing) and letter.attempts == 1 for letter in letters.sent)
        assert bench.work.starts() == {'{"id": 1}': 1}

    def test_a_missing_key_without_a_dead_letter_stops_the_app(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, '{"id": 1}')
            member = bench.member(settings=SETTINGS, key="id")
            bench.wait_committed(1)
            bench.broker.produce("orders", 0, "no json")
            with pytest.raises(HandlerFailed, match="no business key"):
                member.join()
            assert bench.group.offset(partition()) == 1

    def test_with_missing_key_position_it_is_handled_under_its_position(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, '{"id": 1}', "no json", '{"id": 1}')
            settings = Settings(missing_key="position", commit_interval_s=0.01)
            bench.member(settings=settings, key="id")
            bench.wait_committed(3)
        assert bench.work.starts() == {'{"id": 1}': 1, "no json": 1}

    def test_a_record_without_a_key_behind_a_duplicate_of_its_lane_is_handled(self) -> None:
        """The duplicate ends without a handler: whoever waits behind it must be looked at."""
        with Bench() as bench:
            bench.broker.produce("orders", 0, '{"id": 1}')
            settings = Settings(missing_key="position", ordering="partition", commit_interval_s=0.01)
            bench.member(settings=settings, key="id")
            bench.wait_committed(1)
            bench.broker.produce("orders", 0, '{"id": 1}', "no json")
            bench.wait_committed(3)
        assert bench.work.starts() == {'{"id": 1}': 1, "no json": 1}

    def test_a_key_function_that_raises_fails_the_record_and_says_so(self) -> None:
        with Bench() as bench:

            def key(record: Record) -> str:
                raise ZeroDivisionError

            bench.broker.produce("orders", 0, "x")
            member = bench.member(settings=SETTINGS, key=key, retry=QUICK)
            with pytest.raises(HandlerFailed, match=r"key function of handle failed on orders-0@0") as caught:
                member.join()
            cause = caught.value.__cause__
            assert cause is not None
            assert isinstance(cause.__cause__, ZeroDivisionError)
            assert bench.work.starts() == {}
