"""A shell completes commands, options, choices and files, and nothing that it cannot know."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.bench import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Here


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file, and the command on the path."""
    command = tmp_path / "bin" / "holdfast"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m holdfast "$@"\n')
    command.chmod(0o755)
    (tmp_path / "client.properties").touch()
    return tmp_path


def bash(folder: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    line = " ".join(words)
    script = f"""
        eval "$(holdfast completion bash)"
        COMP_LINE='{line}' COMP_POINT={len(line)} COMP_TYPE=9 COMP_WORDS=({line}) COMP_CWORD={len(words) - 1}
        _python_argcomplete holdfast
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return [each.strip() for each in ran.stdout.split("\n") if each.strip()]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("holdfast", "dead"), ["dead-letters"]),
        (("holdfast", "claims", "for"), ["forget"]),
        (("holdfast", "lag", "--boot"), ["--bootstrap"]),
        (("holdfast", "completion", "f"), ["fish"]),
        (("holdfast", "lag", "--kafka-config", "cli"), ["client.properties"]),
        (("holdfast", "lag", "--group", "cli"), []),
    ],
)
def test_bash_is_offered(folder: Path, words: tuple[str, ...], offered: list[str]) -> None:
    assert bash(folder, *words) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_is_given_its_script(here: Here, shell: str) -> None:
    told = here("completion", shell).stdout
    assert "holdfast" in told
    assert {"bash": "complete ", "zsh": "compdef", "fish": "complete --command holdfast"}[shell] in told


def test_without_the_extra_it_is_named_and_everything_else_works(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "argcomplete.shell_integration", None)
    assert "pip install 'holdfast-mq[completion]'" in here("completion", "bash", code=2).stderr
    assert here("sql", "schema").stdout
