"""What is said of a Java that Spark cannot start with, without starting one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.spark import require_java
from holdfast.errors import ClientUnusable

if TYPE_CHECKING:
    from pathlib import Path


def put_java(folder: Path, script: str) -> None:
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ('java version "1.8.0_292"', 8),
        ('openjdk version "11.0.20" 2023-07-18', 11),
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
    ],
)
@pytest.mark.parametrize("by", ["PATH", "JAVA_HOME"])
def test_a_java_that_is_too_old_is_said_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str, banner: str, version: int
) -> None:
    put_java(tmp_path, f"cat >&2 <<'END'\n{banner}\nEND")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv(*(("PATH", f"{tmp_path}/bin:/usr/bin:/bin") if by == "PATH" else ("JAVA_HOME", str(tmp_path))))
    if version >= 17:
        assert require_java() == version
    else:
        with pytest.raises(ClientUnusable, match=f"needs Java 17 or later, and .*bin/java is Java {version}: install"):
            require_java()


def test_a_missing_java_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClientUnusable, match="there is no 'java' on PATH and no JAVA_HOME: install Java 17 or 21"):
        require_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ClientUnusable, match=r"JAVA_HOME is .*, which does not run .*: install"):
        require_java()


def test_a_java_that_fails_or_says_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    put_java(tmp_path, "exit 1")
    with pytest.raises(ClientUnusable, match=r"which does not run .*exit status 1"):
        require_java()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(ClientUnusable, match="is no Java that tells its version: install"):
        require_java()
