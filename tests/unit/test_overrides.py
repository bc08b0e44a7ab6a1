"""Settings from the environment and from a file: which wins, and what is said of those that cannot be."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, MemoryClaims, Ramp, Settings
from holdfast.errors import SettingError, StateError
from holdfast.plugin.overrides import of_environment, of_file
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource

if TYPE_CHECKING:
    from pathlib import Path


def read(defaults: Settings | None = None, *, file: Path | None = None, **variables: Any) -> Settings:
    return Settings.from_environment(
        defaults, environment={f"HOLDFAST_{name}": value for name, value in variables.items()}, file=file
    )


def variable(name: str, value: str = "tcp://10.0.0.1:9464") -> dict[str, Any]:
    return {name: value}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.toml"


def test_nothing_said_changes_nothing(file: Path) -> None:
    code = Settings(workers=3, ramp=None)
    file.write_text("")
    assert read(code, file=file) == code
    assert read() == Settings()


def test_the_environment_wins_over_the_file_and_the_file_over_the_code(file: Path) -> None:
    file.write_text('workers = 20\nordering = "none"\n')
    found = read(Settings(workers=10, ordering="partition", poll_batch=7), file=file, WORKERS="30")
    assert found == Settings(workers=30, ordering="none", poll_batch=7)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"DRAIN_TIMEOUT_S": " 2.5 "}, Settings(drain_timeout_s=2.5)),
        ({"HANDLER_TIMEOUT_S": "9"}, Settings(handler_timeout_s=9)),
        ({"MISSING_KEY": "position"}, Settings(missing_key="position")),
        ({"RAMP": "none"}, Settings(ramp=None)),
        ({"RAMP_HEADROOM": "2", "RAMP_OVER_S": "5"}, Settings(ramp=Ramp(headroom=2.0, over_s=5.0))),
    ],
)
def test_a_text_becomes_the_value_that_it_stands_for(variables: dict[str, Any], expected: Settings) -> None:
    assert read(**variables) == expected


def test_none_takes_back_what_the_code_says() -> None:
    assert read(Settings(handler_timeout_s=3.0), HANDLER_TIMEOUT_S="None").handler_timeout_s is None


def test_a_nested_setting_keeps_its_siblings_and_begins_with_the_defaults_where_there_is_none() -> None:
    assert read(Settings(ramp=Ramp(over_s=9.0)), RAMP_HEADROOM="3").ramp == Ramp(headroom=3.0, over_s=9.0)
    assert read(Settings(ramp=None), RAMP_HEADROOM="3").ramp == Ramp(headroom=3.0)


def test_of_a_whole_and_its_part_the_later_place_decides(file: Path) -> None:
    file.write_text("[ramp]\nheadroom = 2.0\n")
    assert read(file=file, RAMP="none").ramp is None
    assert read(file=file, RAMP_OVER_S="5").ramp == Ramp(headroom=2.0, over_s=5.0)
    file.write_text('ramp = "none"\n')
    assert read(file=file).ramp is None
    assert read(file=file, RAMP_OVER_S="5").ramp == Ramp(over_s=5.0)


def test_a_contradiction_within_the_file_that_the_environment_ends_is_none(file: Path) -> None:
    file.write_text("workers = 0\nhandler_timeout_s = 3\n")
    assert read(file=file, WORKERS="1") == Settings(workers=1, handler_timeout_s=3)


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"WORKERS": "eight"}, "HOLDFAST_WORKERS='eight' (environment): use a whole number"),
        ({"WORKERS": ""}, "HOLDFAST_WORKERS='' (environment): use a whole number"),
        ({"WORKERS": "-1"}, "HOLDFAST_WORKERS='-1' (environment): use a value above 0"),
        ({"ORDERING": "keys"}, "HOLDFAST_ORDERING='keys' (environment): use one of 'key', 'partition', 'none'"),
        ({"HANDLER_TIMEOUT_S": "soon"}, "HOLDFAST_HANDLER_TIMEOUT_S='soon' (environment): use a number, or none"),
        (
            {"RAMP": "2"},
            "HOLDFAST_RAMP='2' (environment): use none, or HOLDFAST_RAMP_... for one of its settings",
        ),
        (
            {"RAMP_HEADROOM": "0.5"},
            "HOLDFAST_RAMP_HEADROOM='0.5' (environment): use a number above 1; ramp=None does without",
        ),
        (
            {"RAMP": "none", "RAMP_HEADROOM": "2"},
            "HOLDFAST_RAMP='none' (environment): HOLDFAST_RAMP_HEADROOM contradicts it: leave one of the two out",
        ),
        (
            {"WORKER": "8"},
            "HOLDFAST_WORKER='***' (environment): there is no setting of that name: did you mean HOLDFAST_WORKERS?",
        ),
        (
            {"WORKERS": "0", "HANDLER_TIMEOUT_S": "3"},
            (
                "HOLDFAST_HANDLER_TIMEOUT_S='3' (environment): use workers=1 or more: "
                "the thread that polls cannot watch itself"
            ),
        ),
        (
            {"WORKERS": "5000"},
            (
                "max_in_flight=4000 (code or default): use at least workers=5000; in force are HOLDFAST_WORKERS "
                "(environment)"
            ),
        ),
    ],
)
def test_what_cannot_be_is_told_by_its_variable(variables: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingError) as caught:
        read(**variables)
    assert str(caught.value) == told


def test_the_value_of_an_unknown_name_is_not_told() -> None:
    with pytest.raises(SettingError) as caught:
        read(REDIS_URL="redis://me:hush@redis")
    assert "HOLDFAST_REDIS_URL" in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_9464_TCP", "PORT_9464_TCP_ADDR"]
)
def test_what_kubernetes_says_of_a_service_of_that_name_is_no_setting(name: str) -> None:
    assert read(**variable(name)) == read(**variable(f"BILLING_{name}")) == Settings()


def test_every_setting_has_a_variable() -> None:
    for field in fields(Settings):
        with pytest.raises(SettingError, match=rf"^HOLDFAST_{field.name.upper()}='\?'"):
            read(**variable(field.name.upper(), "?"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('workers = "8"', "workers='8' (holdfast.toml): use a whole number"),
        ("workers = true", "workers=True (holdfast.toml): use a whole number"),
        ("ordering = 3", "ordering=3 (holdfast.toml): use one of"),
        ("ramp = 3", 'ramp=3 (holdfast.toml): use a table of its settings, or "none"'),
        ("[ramp]\nhead = 3", "ramp.head='***' (holdfast.toml): there is no setting of that name: did you mean ramp."),
        ("[settings]\nworkers = 3", "settings='***' (holdfast.toml): there is no setting of that name"),
        ("[ramp]\nover_s = 0", "ramp.over_s=0 (holdfast.toml): use a number above 0"),
        ("workers =", "it is no TOML: "),
    ],
)
def test_what_cannot_be_is_told_by_its_file(file: Path, text: str, told: str) -> None:
    file.write_text(text)
    with pytest.raises(SettingError) as caught:
        read(file=file)
    assert told in str(caught.value)


def test_a_file_that_cannot_be_read_is_told(file: Path) -> None:
    with pytest.raises(SettingError, match="cannot be read"):
        read(file=file)
    file.write_bytes(b"\xff")
    with pytest.raises(SettingError, match="UTF-8"):
        read(file=file)


def test_a_pyproject_has_them_in_a_table(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text('[project]\nname = "billing"\n[tool.holdfast]\nworkers = 4\n[tool.holdfast.ramp]\nover_s = 5\n')
    assert read(file=project) == Settings(workers=4, ramp=Ramp(over_s=5))
    project.write_text('[project]\nname = "billing"\n')
    assert read(file=project) == Settings()
    project.write_text("[tool]\nholdfast = 3\n")
    with pytest.raises(SettingError, match=r"tool.holdfast.*make it a table"):
        read(file=project)


def test_the_environment_is_read_only_when_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_WORKERS", "3")
    assert Settings().workers == 8
    assert Settings.from_environment().workers == 3


def test_the_later_of_two_places_is_what_is_told(file: Path) -> None:
    file.write_text("workers = 3\npoll_batch = 5\n")
    found = of_file(Settings, file).under(of_environment(Settings, {"HOLDFAST_WORKERS": "4"}))
    assert {path: given.where for path, given in found.values.items()} == {
        "workers": "environment",
        "poll_batch": "holdfast.toml",
    }


class TestAnApp:
    def app(self, **settings: Any) -> Holdfast:
        source = MemoryPartitionedSource(MemoryBroker(orders=1))
        return Holdfast(source, claims=MemoryClaims(), settings=Settings(**settings))

    def timeouts(self, app: Holdfast) -> dict[str, float | None]:
        app.parts.time_handlers()
        return {each.name: each.timeout_s for each in app.parts.routes.handlers}

    def test_takes_other_settings_until_it_runs(self) -> None:
        app = self.app(workers=2)
        app.reconfigure(Settings(workers=5))
        assert app.parts.settings.workers == 5

    def test_times_handlers_by_the_settings_with_which_it_runs(self) -> None:
        app = self.app(handler_timeout_s=1.0)
        app.handler("a", name="usual")(print)
        app.handler("b", name="own", timeout_s=2.0)(print)
        app.handler("c", name="without", timeout_s=math.inf)(print)
        app.reconfigure(Settings(handler_timeout_s=7.0))
        assert self.timeouts(app) == {"usual": 7.0, "own": 2.0, "without": math.inf}

    def test_without_a_timeout_leaves_those_that_handlers_have(self) -> None:
        app = self.app(handler_timeout_s=1.0)
        app.handler("a", name="usual")(print)
        app.handler("b", name="own", timeout_s=2.0)(print)
        app.reconfigure(Settings())
        assert self.timeouts(app) == {"usual": None, "own": 2.0}

    def test_refuses_settings_that_a_handler_cannot_work_with(self) -> None:
        app = self.app()

        @app.handler("orders", name="bill")
        async def bill(_: object) -> None: ...

        with pytest.raises(SettingError, match="bill is an async def, which needs workers=1 or more"):
            app.reconfigure(Settings(workers=0))
        assert app.parts.settings.workers == 8

    def test_that_is_to_stop_at_a_timeout_needs_one(self) -> None:
        app = self.app(on_handler_timeout="stop", handler_timeout_s=3.0)
        app.handler("a")(print)
        app.check()
        app.reconfigure(Settings(on_handler_timeout="stop"))
        with pytest.raises(SettingError, match="no handler has a timeout"):
            app.check()

    def test_that_has_run_takes_no_others(self) -> None:
        app = self.app()
        app.handler("orders")(print)
        app.stop()
        app.run()
        with pytest.raises(StateError, match="before run"):
            app.reconfigure(Settings())


def test_the_options_of_holdfast_run_are_none_of_an_app(file: Path) -> None:
    file.write_text("workers = 3\n[run]\nprocesses = 4\n")
    assert read(file=file, RUN_PROCESSES="2", RUN_PORT="9464") == Settings(workers=3)
