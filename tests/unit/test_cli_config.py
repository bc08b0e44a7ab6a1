"""`holdfast config`: which settings are in force, and where each comes from. `holdfast run` applies the same."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.cli import main
from holdfast.adapters.cli.entry import parser
from holdfast.adapters.cli.running.run_options import settle

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Found = Callable[..., dict[str, tuple[object, str]]]

APP = """
from holdfast import Holdfast, RedisClaims, Settings
from holdfast.adapters.kafka import KafkaSource

source = KafkaSource(
    {"bootstrap.servers": "localhost:9092", "group.id": "billing", "sasl.password": "hush"}, assignment="sticky"
)
claims = RedisClaims.from_url("redis://me:hush@localhost:6379/0")
app = Holdfast(source, claims=claims, settings=Settings(workers=4, drain_timeout_s=20))
"""
ROCKETMQ = """
from holdfast import Holdfast, RedisClaims, RedisCoordinator
from holdfast.adapters.rocketmq import RocketMQSource

claims = RedisClaims.from_url("redis://localhost:6379/0")
source = RocketMQSource(
    "localhost:9876", "billing", coordinator=RedisCoordinator(claims), access_key="hush-key", secret_key="hush"
)
app = Holdfast(source, claims=claims)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with an app."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "billing", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "billing.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def found(folder: Path, capsys: pytest.CaptureFixture[str]) -> Found:
    """Settings with their values and where they come from."""

    def run(*arguments: str) -> dict[str, tuple[object, str]]:
        assert main(["config", *arguments, "--json"]) == 0
        values = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return {each["name"]: (each["value"], each["from"]) for each in values}

    return run


def test_each_setting_says_where_it_comes_from(found: Found, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "holdfast.toml").write_text("drain_timeout_s = 15\npoll_batch = 9\n")
    monkeypatch.setenv("HOLDFAST_POLL_BATCH", "11")
    monkeypatch.setenv("HOLDFAST_RAMP_HEADROOM", "2")
    told = found("billing:app")
    assert told["workers"] == (4, "code")
    assert told["drain_timeout_s"] == (15, "drain_timeout_s (holdfast.toml)")
    assert told["poll_batch"] == (11, "HOLDFAST_POLL_BATCH (environment)")
    assert told["ramp.headroom"] == (2, "HOLDFAST_RAMP_HEADROOM (environment)")
    assert told["ramp.over_s"] == (30, "default")
    assert told["handler_timeout_s"] == ("none", "default")


def test_without_an_app_it_tells_what_any_app_gets(found: Found, folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.holdfast]\nworkers = 3\nramp = 'none'\n")
    told = found()
    assert told["workers"] == (3, "workers (pyproject.toml)")
    assert told["ramp"] == ("none", "ramp (pyproject.toml)")


def test_a_file_that_is_named_is_read_in_the_place_of_the_folder_s(found: Found, folder: Path) -> None:
    (folder / "holdfast.toml").write_text("workers = 3\n")
    (folder / "staging.toml").write_text("workers = 5\n")
    assert found("--config", "staging.toml")["workers"] == (5, "workers (staging.toml)")


def test_two_files_are_one_too_many(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "holdfast.toml").write_text("workers = 3\n")
    (folder / "pyproject.toml").write_text("[tool.holdfast]\nworkers = 3\n")
    assert main(["config"]) == 2
    assert "pyproject.toml has [tool.holdfast] as well: leave one of the two out" in capsys.readouterr().err


def test_source_and_store_are_told_without_credentials(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "billing:app"]) == 0
    told = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[1:] for line in told.splitlines()}
    assert rows["source"] == ["KafkaSource", "code"]
    assert rows["source.bootstrap.servers"] == ["localhost:9092", "code"]
    assert rows["source.sasl.password"] == ["***", "code"]
    assert rows["source.assignment"] == ["sticky", "the", "broker", "decides,", "asked", "at", "the", "start"]
    assert rows["store"][0] == "RedisClaims(localhost:6379/0,"
    assert "hush" not in told


def test_what_holdfast_sets_for_the_client_is_told_as_such(folder: Path, found: Found) -> None:
    (folder / "billing.py").write_text(APP.replace('assignment="sticky"', 'assignment="keep"'))
    told = found("billing:app")
    assert told["source.bootstrap.servers"] == ("localhost:9092", "code")
    assert told["source.enable.auto.commit"] == (False, "holdfast")
    assert "hush" not in str(told)


def test_a_rocketmq_source_is_told_without_credentials(folder: Path, found: Found) -> None:
    (folder / "billing.py").write_text(ROCKETMQ)
    told = found("billing:app")
    assert told["source"] == ("RocketMQSource", "code")
    assert told["source.namesrv"] == ("localhost:9876", "code")
    assert told["source.secret_key"] == ("***", "code")
    assert told["source.weight"] == (1, "default")
    assert "hush" not in str(told)


def test_a_value_that_cannot_be_is_a_sentence_with_its_origin(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_WORKERS", "eight")
    for command in (["config"], ["run", "billing:app"]):
        assert main(command) == 2
        assert capsys.readouterr().err == "holdfast: HOLDFAST_WORKERS='eight' (environment): use a whole number\n"


def test_a_value_that_the_source_refuses_is_told_by_its_variable(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DRAIN_TIMEOUT_S", "400")
    assert main(["config", "billing:app"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("holdfast: HOLDFAST_DRAIN_TIMEOUT_S='400' (environment): a drain runs between two polls")


def test_a_check_before_a_deployment_tells_what_is_not_by_default(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_WORKERS", "6")
    main(["run", "billing:app", "--check"])
    told = capsys.readouterr().out.splitlines()[1]
    assert told.split(maxsplit=2)[:2] == ["ok", "settings"]
    assert "workers=6 from HOLDFAST_WORKERS (environment), drain_timeout_s=20 from code" in told


def test_the_options_of_run_come_from_the_environment_and_the_file_too(
    found: Found, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "holdfast.toml").write_text(
        'workers = 3\n[run]\nprocesses = 4\nstatic = true\ngrace = "25s"\nport = 9464\n'
    )
    monkeypatch.setenv("HOLDFAST_RUN_PORT", "none")
    monkeypatch.setenv("HOLDFAST_RUN_LOG_LEVEL", "warning")
    told = found("billing:app")
    assert told["workers"] == (3, "workers (holdfast.toml)")
    assert told["run.processes"] == (4, "run.processes (holdfast.toml)")
    assert told["run.static"] == ("true", "run.static (holdfast.toml)")
    assert told["run.grace"] == (25.0, "run.grace (holdfast.toml)")
    assert told["run.port"] == ("none", "HOLDFAST_RUN_PORT (environment)")
    assert told["run.log_level"] == ("warning", "HOLDFAST_RUN_LOG_LEVEL (environment)")
    assert told["run.host"] == ("127.0.0.1", "default")


def test_the_token_of_the_endpoint_is_shown_nowhere(
    folder: Path, found: Found, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found()["run.token"] == ("none", "default")
    monkeypatch.setenv("HOLDFAST_RUN_TOKEN", "hushhushhushhush")
    assert found()["run.token"] == ("***", "HOLDFAST_RUN_TOKEN (environment)")
    monkeypatch.setenv("HOLDFAST_RUN_TOKEN", "hush")
    (folder / "holdfast.toml").write_text('[run]\ntoken = "hush"\n')
    for name in ("HOLDFAST_RUN_TOKEN", "run.token"):
        assert main(["config"]) == 2
        told = capsys.readouterr().err
        assert f"{name}='***' (" in told
        assert "use 16 to 200 letters" in told
        assert "hush" not in told
        monkeypatch.delenv("HOLDFAST_RUN_TOKEN", raising=False)


def test_the_command_line_wins_over_both(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "holdfast.toml").write_text("[run]\nprocesses = 4\nrestarts = 0\n")
    monkeypatch.setenv("HOLDFAST_RUN_STATIC", "till")
    options = parser().parse_args(["run", "billing:app", "--processes", "2"])
    origins = {each.name: each.origin for each in settle(options, options.config)}
    assert (options.processes, options.static, options.restarts) == (2, "till", 0)
    assert origins["run.processes"] == "--processes (command line)"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "HOLDFAST_RUN_PROCESSES",
            "x",
            "HOLDFAST_RUN_PROCESSES='x' (environment): 'x' is no whole number from 1 to 10,000",
        ),
        ("HOLDFAST_RUN_LOG_LEVEL", "loud", "HOLDFAST_RUN_LOG_LEVEL='loud' (environment): use one of debug, info,"),
        ("HOLDFAST_RUN_STATIC", "", "HOLDFAST_RUN_STATIC='' (environment): say true for this host's name, none, or"),
        ("HOLDFAST_RUN_PROCESES", "hush", "did you mean HOLDFAST_RUN_PROCESSES?"),
    ],
)
def test_an_option_that_cannot_be_is_a_sentence_with_its_origin(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    for command in (["config"], ["run", "billing:app"], ["run", "billing:app", "--check"]):
        assert main(command) == 2
        told = capsys.readouterr().err
        assert said in told
        assert "hush" not in told


def test_an_option_of_the_file_that_cannot_be_names_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, said in (
        ("[run]\nport = 70000\n", "run.port='70000' (holdfast.toml): '70000' is no port"),
        (
            "[run]\nports = 1\n",
            "run.ports='***' (holdfast.toml): `holdfast run` has no option of that name here: did you",
        ),
        ("run = 3\n", "run=3 (holdfast.toml): use a table [run]"),
    ):
        (folder / "holdfast.toml").write_text(text)
        assert main(["config"]) == 2
        assert said in capsys.readouterr().err


def test_what_kubernetes_says_of_a_service_is_no_option(found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLDFAST_RUN_SERVICE_HOST", "HOLDFAST_RUN_PORT_80_TCP_ADDR"):
        monkeypatch.setenv(name, "10.0.0.1")
    monkeypatch.setenv("HOLDFAST_RUN_PORT", "tcp://10.0.0.1:80")
    assert found()["run.port"] == ("none", "default")
