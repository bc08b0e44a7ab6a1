"""Confs of a session that are other ones for a while, also where several sinks of one batch run in threads."""

from __future__ import annotations

from contextlib import ExitStack
from threading import Event, Thread
from typing import Any

import pytest

from holdfast.adapters.spark.session import changed
from holdfast.adapters.spark.values import WriteFailed
from holdfast.adapters.spark.writers import delta_merge
from holdfast.errors import SettingError
from tests.harness.waiting import PATIENCE_S

QUICK, TXN = {"adaptive": "false"}, "txnVersion"


class _Session:
    """As much of one as it takes."""

    def __init__(self, **confs: str) -> None:
        self.confs, self.conf = confs, self
        self.wrong = False

    def get(self, name: str, default: None) -> str | None:
        return self.confs.get(name, default)

    def set(self, name: str, value: str) -> None:
        if self.wrong:
            raise RuntimeError(name)
        self.confs[name] = value

    def unset(self, name: str) -> None:
        del self.confs[name]


@pytest.mark.parametrize("before", [{}, {"adaptive": "true"}])
def test_they_are_as_before_whoever_ends_first(before: dict[str, str]) -> None:
    session: Any = _Session(**before)
    one, two = ExitStack(), ExitStack()
    one.enter_context(changed(session, QUICK))
    two.enter_context(changed(session, QUICK))
    one.close()
    assert session.confs == QUICK
    two.close()
    assert session.confs == before


def test_who_wants_another_value_waits_and_other_sessions_do_not() -> None:
    """Of two merges into Delta tables each would go by the other's identifier, and stay there for what comes later."""
    session: Any = _Session()
    seen: list[str] = []
    begins, over = Event(), Event()

    def second() -> None:
        begins.set()
        with changed(session, {TXN: "2"}):
            seen.append(session.confs[TXN])
        over.set()

    with changed(session, {TXN: "1"}):
        Thread(target=second, daemon=True).start()
        assert begins.wait(PATIENCE_S)
        other: Any = _Session()
        with changed(other, {TXN: "3"}):
            assert (session.confs, other.confs) == ({TXN: "1"}, {TXN: "3"})
    assert over.wait(PATIENCE_S)
    assert (seen, session.confs) == (["2"], {})


def test_a_session_that_refuses_one_has_none_of_them_and_holds_nobody_up() -> None:
    session: Any = _Session()
    with changed(session, QUICK):
        session.wrong = True
        with pytest.raises(RuntimeError), changed(session, {**QUICK, TXN: "1"}):
            raise AssertionError
        session.wrong = False
    with changed(session, {"adaptive": "true", TXN: "2"}):
        assert session.confs == {"adaptive": "true", TXN: "2"}
    assert session.confs == {}


def test_a_wait_for_another_sink_ends_with_the_thread_that_it_waited_for() -> None:
    session: Any = _Session()
    with changed(session, {TXN: "1"}):
        with pytest.raises(WriteFailed, match=r"txnVersion is '1', set by thread 'MainThread'.*wait_s=") as caught:
            _entered(session, {**QUICK, TXN: "2"})
        assert caught.value.__cause__ is None
        assert session.confs == {TXN: "1"}, "what it had set before is as it was"
    with changed(session, {TXN: "2"}, wait_s=0.01):
        assert session.confs == {TXN: "2"}


def _entered(session: Any, confs: dict[str, str]) -> None:
    with changed(session, confs, wait_s=0.01):
        raise AssertionError


def test_a_merge_that_would_not_wait_at_all_is_refused() -> None:
    with pytest.raises(SettingError, match="wait_s"):
        delta_merge("/lake/orders", wait_s=0)
