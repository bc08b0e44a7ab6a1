"""`holdfast run --reload`: which changes of files it sees."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.cli.running.changes import FileChanges, watched

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package, the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "billing").mkdir()
    (tmp_path / "billing" / "main.py").write_text("app = 1\n")
    return tmp_path


@pytest.fixture
def changes(folder: Path) -> FileChanges:
    return watched(".")


def test_nothing_has_changed_until_something_does(changes: FileChanges, folder: Path) -> None:
    assert changes.seen() == ""
    (folder / "billing" / "main.py").write_text("app = 22\n")
    assert changes.seen() == "billing/main.py changed"
    assert changes.seen() == ""


def test_a_file_that_is_saved_with_the_same_size_is_seen_by_its_time(changes: FileChanges, folder: Path) -> None:
    os.utime(folder / "billing" / "main.py", ns=(1, 1))
    assert changes.seen() == "billing/main.py changed"


def test_files_that_come_and_go_are_changes_too(changes: FileChanges, folder: Path) -> None:
    new = folder / "billing" / "new.py"
    new.write_text("")
    assert changes.seen() == "billing/new.py changed"
    new.unlink()
    assert changes.seen() == "billing/new.py changed"


def test_settings_are_watched_as_modules_are(changes: FileChanges, folder: Path) -> None:
    for each in range(5):
        (folder / f"{each}.toml").write_text("")
    assert changes.seen() == "0.toml, 1.toml, 2.toml and 2 files changed"


@pytest.mark.parametrize("where", [".git/hook.py", "__pycache__/main.py", "venv/lib/x.py", "notes.txt", "a/.b/c.py"])
def test_what_is_no_code_of_the_user_s_is_not_watched(changes: FileChanges, folder: Path, where: str) -> None:
    (folder / "venv").mkdir()
    (folder / "venv" / "pyvenv.cfg").write_text("")
    (folder / where).parent.mkdir(parents=True, exist_ok=True)
    (folder / where).write_text("x")
    assert changes.seen() == ""


def test_an_app_that_is_elsewhere_is_watched_there(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    changes = watched(str(elsewhere))
    (elsewhere / "main.py").write_text("")
    assert "main.py changed" in changes.seen()
    (folder / "billing" / "main.py").write_text("")
    assert changes.seen() == "billing/main.py changed"
