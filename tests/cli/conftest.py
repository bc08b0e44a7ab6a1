"""The command in the test's own process, which is quicker than a subprocess."""

from __future__ import annotations

import subprocess

import pytest

from holdfast.adapters.cli import main


class Here:
    """Runs a command in this process; what it writes is what the process writes."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object, code: int | tuple[int, ...] = 0) -> subprocess.CompletedProcess[str]:
        """Run it, and expect its exit code, or one of these."""
        said = [str(each) for each in arguments]
        self._capsys.readouterr()
        try:
            became = main(said)
        except SystemExit as ended:
            became = int(str(ended.code))
        told = self._capsys.readouterr()
        assert became in ((code,) if isinstance(code, int) else code), told.out + told.err
        return subprocess.CompletedProcess(said, became, told.out, told.err)


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Here:
    """The command."""
    return Here(capsys)
