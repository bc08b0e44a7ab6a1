"""The command as such: exit codes, sentences instead of tracebacks, no credentials, what is missing."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.bench import ROOT, holdfast
from tests.contracts.kafka_brokers import closed_port
from tests.servers.redis import RedisServer

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["closed_port"]

CLAIMS = ("claims", "show", "1", "--scope", "s")
LIST = ("dead-letters", "list", "--topic", "t")
RESET = ("reset", "--group", "g", "--topic", "t", "--to", "earliest")


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("claims",),
        ("claims", "show"),
        ("claims", "forget"),
        ("claims", "stats"),
        ("reset",),
        ("lag",),
        ("plan",),
        ("group", "show"),
        ("dead-letters",),
        ("dead-letters", "list"),
        ("dead-letters", "replay"),
        ("emit",),
        ("migrate",),
    ],
)
def test_every_command_explains_itself(command: tuple[str, ...]) -> None:
    told = holdfast(*command, "--help").stdout
    assert told.startswith("usage: holdfast")
    assert not command or command in (("claims",), ("dead-letters",)) or "example" in told


def test_the_version_is_told() -> None:
    assert holdfast("--version").stdout.startswith("holdfast ")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nothing",),
        (*CLAIMS,),
        ("claims", "show", "1", "--redis", "redis://x"),
        ("claims", "show", "--redis", "redis://x", "--scope", "s"),
        (*LIST,),
        (*LIST, "--bootstrap", "x:1", "--pending"),
        (*RESET, "--bootstrap", "x:1"),
        ("reset", "--group", "g", "--topic", "t", "--to", "soon", "--redis", "redis://x", "--bootstrap", "x:1"),
        (*LIST, "--kafka-config", "/no/such/file"),
        (*CLAIMS, "--redis", "@/no/such/file"),
    ],
)
def test_what_cannot_be_meant_is_usage(arguments: tuple[str, ...]) -> None:
    assert holdfast(*arguments, code=2).stderr


def test_a_property_that_the_client_does_not_know_is_a_setting(tmp_path: Path) -> None:
    config = tmp_path / "kafka"
    config.write_text("bootstrap.servers=x:1\nno.such.property=hush\n")
    told = holdfast(*LIST, "--kafka-config", config, code=2).stderr
    assert "no.such.property" in told
    assert "hush" not in told


def test_no_answer_is_told_apart_from_a_refusal_and_names_no_password(closed_port: str, tmp_path: Path) -> None:
    config, redis = tmp_path / "kafka", tmp_path / "redis"
    config.write_text(f"bootstrap.servers={closed_port}\nsasl.password=hush\nsasl.username=me\n")
    redis.write_text(f"redis://me:hush@{closed_port}/0")
    for command in ((*LIST, "--kafka-config", config, "--timeout", 1), (*CLAIMS, "--redis", f"@{redis}")):
        told = holdfast(*command, code=3).stderr
        assert closed_port in told
        assert "hush" not in told
        assert len(told.splitlines()) == 1
    with RedisServer(password="right") as server:  # noqa: S106 - of this test's server
        wrong = server.url.replace("right", "wrong")
        told = holdfast(*CLAIMS, "--redis", wrong, code=1).stderr
        assert "credentials" in told
        assert "wrong" not in told


def test_without_the_kafka_client_the_extra_is_named_and_claims_work(redis_url: str) -> None:
    code = "import sys; sys.modules['confluent_kafka'] = None; from holdfast.adapters.cli import main; sys.exit(main())"
    for command, said in (
        ((*LIST, "--bootstrap", "x:1"), "pip install 'holdfast[kafka]'"),
        ((*CLAIMS, "--redis", redis_url), "no namespace"),
    ):
        ran = subprocess.run(
            [sys.executable, "-c", code, *command], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 1
        assert said in ran.stderr
        assert len(ran.stderr.splitlines()) == 1


def test_debug_shows_the_traceback(redis_url: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "holdfast", *CLAIMS, "--redis", redis_url, "--debug"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "Traceback" in ran.stderr
