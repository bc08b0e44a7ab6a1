"""`holdfast run --processes`, its parts: restarts, who asks to stop, and names by ordinal."""

from __future__ import annotations

import errno
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, MemoryClaims
from holdfast.adapters.cli.exit_codes import ImportFailed
from holdfast.adapters.cli.running.child import Child, told
from holdfast.adapters.cli.running.process import Stops, _again, check_names, name, static_id
from holdfast.adapters.cli.running.restarts import LONGEST_WAIT_S, WELL_S, Restarts
from holdfast.adapters.cli.running.supervisor import Supervisor
from holdfast.adapters.kafka import KafkaSource
from holdfast.errors import HandlerFailed, SettingError, SourceUnavailable, StaticIdTaken
from holdfast.timing import SYSTEM_CLOCK
from tests.harness.waiting import until

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

CONF = {"bootstrap.servers": "localhost:9092", "group.id": "billing"}


class TestRestarts:
    def test_wait_longer_each_time_up_to_a_bound(self) -> None:
        restarts = Restarts(limit=50)
        waits = [restarts.after(1.0, 0) for _ in range(50)]
        assert waits[:4] == [0.5, 1.0, 2.0, 4.0]
        assert waits[-1] == LONGEST_WAIT_S

    def test_are_given_up_after_so_many_in_a_row_and_say_since_when(self) -> None:
        restarts = Restarts(limit=2)
        assert [restarts.after(1.0, now_ms) is None for now_ms in (10, 20, 30)] == [False, False, True]
        assert (restarts.ends, restarts.since_ms) == (3, 10)

    def test_of_who_was_well_for_a_minute_begin_a_new_row(self) -> None:
        restarts = Restarts(limit=2)
        for now_ms in range(20):
            assert restarts.after(WELL_S, now_ms) == 0.5
        assert restarts.since_ms == 19

    def test_may_be_none(self) -> None:
        assert Restarts(limit=0).after(1.0, 0) is None


class _App:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def stop(self, *, why: str = "again") -> None:
        self.asked.append(why)


class TestStops:
    @pytest.fixture
    def app(self) -> Any:
        return _App()

    @pytest.fixture
    def stops(self, app: Any) -> Stops:
        return Stops(app)

    def test_a_supervisor_and_a_signal_are_one_stop_in_either_order(self, app: _App, stops: Stops) -> None:
        stops.ask("SIGTERM")
        stops.signalled(signal.SIGTERM)
        stops.ask("the supervisor has gone")
        assert app.asked == ["SIGTERM"]
        other: Any = _App()
        stops = Stops(other)
        stops.signalled(signal.SIGINT)
        stops.ask("SIGTERM")
        assert other.asked == ["SIGINT"]

    @pytest.mark.parametrize("twice", [True, False], ids=["two signals", "the supervisor"])
    def test_who_asks_twice_hurries(self, app: _App, stops: Stops, twice: bool) -> None:
        stops.signalled(signal.SIGTERM)
        if twice:
            stops.signalled(signal.SIGTERM)
        else:
            stops.hurry()
        assert app.asked == ["SIGTERM", "again"]

    def test_a_hurry_that_comes_first_is_a_stop_too(self, app: _App, stops: Stops) -> None:
        stops.hurry()
        assert app.asked == ["hurry", "again"]


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (HandlerFailed("a record"), True),
        (SourceUnavailable("no answer"), True),
        (LookupError("a resource of the user's"), True),
        (SettingError("workers", -1, "use more"), False),
        (ImportFailed("a traceback"), False),
        # Both would throw each other out for ever.
        (StaticIdTaken("another process"), False),
    ],
)
def test_a_restart_may_help_but_where_somebody_has_to_change_something(error: Exception, again: bool) -> None:
    assert _again(error) is again


@pytest.mark.parametrize(
    ("code", "says"), [(0, "exit code 0"), (7, "exit code 7"), (-9, "SIGKILL"), (-99, "signal 99")]
)
def test_an_end_is_told_as_people_say_it(code: int, says: str) -> None:
    assert told(code) == says


class _Process:
    """A process that has an app at once, and ends well when it is asked to."""

    def __init__(self, ordinal: int) -> None:
        self.pid, self.started_s, self.asked = ordinal, SYSTEM_CLOCK.now(), False
        self.loaded, self.failed = {"stop_s": 10.0}, None
        self.socket, self._theirs = socket.socketpair()
        self._theirs.send(b"loaded")

    def hear(self) -> bool:
        return bool(self.socket.recv(100))

    def stop(self, _: str) -> None:
        self.asked = True
        self._theirs.close()

    def ended(self) -> int | None:
        return 0 if self.asked else None


class _Hanging(_Process):
    """One that does not end when it is asked to."""

    killed = False

    def ended(self) -> int | None:
        return -signal.SIGKILL if self.killed else None

    def kill(self) -> None:
        self.killed = True


class _OneChange:
    every_s = 0.01

    def __init__(self) -> None:
        self._news = ["a.py changed"]

    def seen(self) -> str:
        return self._news.pop() if self._news else ""


def test_a_change_ends_a_process_that_hangs_and_another_begins_in_its_place() -> None:
    children: list[Any] = []

    def start(ordinal: int) -> Any:
        children.append(_Process(ordinal) if children else _Hanging(ordinal))
        if len(children) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return children[-1]

    assert Supervisor(start, 1, restarts=0, grace_s=0.05, changes=_OneChange()).run() == 0
    assert [type(each) for each in children] == [_Hanging, _Process]
    assert children[0].killed


@pytest.mark.parametrize("how", ["ends by itself", "is killed"])
def test_what_a_process_has_started_does_not_outlive_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    begun = tmp_path / "begun"
    fake = tmp_path / "python"
    ends = "exit 3" if how == "ends by itself" else "exec sleep 600"
    fake.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {begun}.new; mv {begun}.new {begun}\n{ends}\n")
    fake.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(fake))
    child = Child(["run", "shop:app"], 0)
    until(begun.exists)
    if how == "is killed":
        assert child.ended() is None
        child.kill()
    until(lambda: child.ended() is not None)
    assert child.ended() == (3 if how == "ends by itself" else -signal.SIGKILL)
    until(lambda: not _runs(int(begun.read_text())))
    child.socket.close()


def _runs(pid: int) -> bool:
    """Whether it does more than wait for its end to be noticed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class TestProcessesThatCannotBeStarted:
    """A machine without memory, or without room for one more process, has it again later."""

    def supervised(self, starts: list[int], refused: int, restarts: int) -> int:
        """Of process 1 so many starts are refused. Returns: the exit code."""

        def start(ordinal: int) -> Any:
            starts.append(ordinal)
            if ordinal == 1 and starts.count(1) <= refused:
                raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
            if ordinal == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            return _Process(ordinal)

        return Supervisor(start, 2, restarts=restarts).run()

    def test_are_tried_again_and_the_others_go_on(self) -> None:
        starts: list[int] = []
        assert self.supervised(starts, refused=1, restarts=2) == 0
        assert starts == [0, 1, 1]

    def test_are_given_up_after_so_many_tries_and_the_others_drain(self) -> None:
        starts: list[int] = []
        assert self.supervised(starts, refused=9, restarts=0) == 1
        assert starts == [0, 1]

    def test_leave_no_line_behind(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An open one would be a ResourceWarning, which is an error here."""
        monkeypatch.setattr("sys.executable", "/nowhere/python")
        with pytest.raises(FileNotFoundError) as failed:
            Child(["run", "shop:app"], 0)
        assert failed.value.filename == "/nowhere/python"


class TestStaticIds:
    def test_are_the_prefix_or_this_host_with_the_ordinal(self) -> None:
        assert static_id("till", 0) == "till-0"
        assert static_id("", 3) == f"{socket.gethostname()}-3"

    def app(self, **source: Any) -> Holdfast:
        return Holdfast(
            KafkaSource({**CONF, **source.pop("conf", {})}, assignment="sticky", **source), claims=MemoryClaims()
        )

    def test_become_the_source_s_own(self) -> None:
        app = self.app()
        name(app, "till-1")
        assert app.parts.source._static_id() == "till-1"  # type: ignore[union-attr]

    @pytest.mark.parametrize(
        ("source", "says"),
        [
            ({"static_id": "mine"}, "group.instance.id='mine' says another"),
            ({"conf": {"group.instance.id": "mine"}}, "group.instance.id='mine' says another"),
            ({"static_id": lambda: "mine"}, "the source asks a function for its name: leave one of the two out"),
        ],
    )
    def test_are_refused_where_the_app_has_one(self, source: dict[str, Any], says: str) -> None:
        with pytest.raises(SettingError, match=says):
            name(self.app(**source), "till-1")

    @pytest.mark.parametrize("source", [{"static_id": "mine"}, {"conf": {"group.instance.id": "mine"}}])
    def test_that_all_processes_would_have_are_refused_before_one_joins(self, source: dict[str, Any]) -> None:
        with pytest.raises(SettingError, match="each process would be the static member 'mine': say --static"):
            check_names(self.app(**source), 2)

    @pytest.mark.parametrize("source", [{}, {"static_id": lambda: "mine"}])
    def test_that_each_process_finds_for_itself_are_its_own_matter(self, source: dict[str, Any]) -> None:
        check_names(self.app(**source), 2)

    def test_of_sources_that_have_none_are_refused_with_the_reason(self) -> None:
        from holdfast import RedisClaims, RedisCoordinator  # noqa: PLC0415 - beside what it is about
        from holdfast.adapters.rocketmq import RocketMQSource  # noqa: PLC0415 - as above

        claims = RedisClaims.from_url("redis://localhost:6379/0")
        source = RocketMQSource("localhost:9876", "billing", coordinator=RedisCoordinator(claims))
        with pytest.raises(SettingError, match="RocketMQSource has no static members"):
            name(Holdfast(source, claims=claims), "till-1")

    def test_that_are_none_are_refused(self) -> None:
        with pytest.raises(SettingError, match="1 to 249 letters"):
            name(self.app(), "till 1")


def parsed(*arguments: str) -> argparse.Namespace:
    from holdfast.adapters.cli.entry import parser  # noqa: PLC0415 - beside what it is about
    from holdfast.adapters.cli.running.run_options import settle  # noqa: PLC0415 - as above

    options = parser().parse_args(["run", "billing:app", *arguments])
    settle(options, None)
    return options


@pytest.mark.parametrize(
    ("arguments", "get", "expected"),
    [
        ((), lambda options: (options.processes, options.static, options.restarts, options.grace), (1, None, 5, None)),
        (("--static",), lambda options: options.static, ""),
        (("--static", "till"), lambda options: options.static, "till"),
        (("--processes", "4", "--grace", "25s"), lambda options: (options.processes, options.grace), (4, 25.0)),
    ],
)
def test_the_options_are_read(
    arguments: tuple[str, ...], get: Callable[[argparse.Namespace], object], expected: object
) -> None:
    assert get(parsed(*arguments)) == expected
