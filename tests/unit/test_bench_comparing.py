"""`make bench COMPARE=...`: what counts as slower, and which package is measured."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import holdfast
from tests.benchmarks.comparing import changes, package_of
from tests.benchmarks.lab import Lab, Speed


def _pairs(here_us: list[float], there_us: list[float]) -> list[tuple[Speed, Speed]]:
    return [
        (Speed(1, 1.0, here / 1e6), Speed(1, 1.0, there / 1e6)) for here, there in zip(here_us, there_us, strict=True)
    ]


@pytest.mark.parametrize(
    ("here_us", "verdict"),
    [
        ([11, 12, 11.5, 13, 10.4], "slower"),
        ([8, 9, 9.7, 7, 8], "faster"),
        ([11, 12, 11, 9.9, 13], "as before"),  # one round says the contrary
        ([10.1, 10.1, 10.1, 10.1, 10.1], "as before"),  # one in a hundred
        ([20, 20, 20, 20], "too few rounds"),
    ],
)
def test_a_row_is_slower_or_faster_only_if_every_round_says_so(here_us: list[float], verdict: str) -> None:
    (change,) = changes({"row": _pairs(here_us, [10.0] * len(here_us))})
    assert change.verdict == verdict


def test_the_other_package_is_measured_by_our_own_benchmarks(tmp_path: Path) -> None:
    (tmp_path / "holdfast").symlink_to(Path(holdfast.__file__).parent)
    with Lab(quick=True, rounds=2, other=tmp_path) as lab:
        lab.in_turns(5, {"row": lambda: lab.in_child(_imported_from, str(tmp_path))})
    assert [(here.records, there.records) for here, there in lab.compared["row"]] == [(0, 1), (0, 1)]


def _imported_from(tree: str) -> Speed:
    return Speed(int(holdfast.__file__.startswith(tree)), 1.0, 1.0)


def test_a_commit_s_package_is_unpacked_and_one_that_is_not_there_is_named(tmp_path: Path) -> None:
    _git(tmp_path, "init", "-q")
    (tmp_path / "holdfast").mkdir()
    (tmp_path / "holdfast" / "it.py").write_text("then")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", "first")
    (tmp_path / "holdfast" / "it.py").write_text("now")
    with package_of("HEAD", tmp_path) as tree:
        assert (tree / "holdfast" / "it.py").read_text() == "then"
    with pytest.raises(SystemExit, match="no-such-commit"), package_of("no-such-commit", tmp_path):
        pass


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True)
