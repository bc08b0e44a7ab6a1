"""Two commits in one run: the other one's holdfast in a folder of its own, and what became slower or faster."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.registry import spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.benchmarks.lab import Speed
    from tests.benchmarks.registry import Spread

_ROOT = Path(__file__).parents[2]
#: Less than that is nobody's loss, however even the rounds are.
_WORTH = 0.02
#: Fewer rounds agree by chance: one row in sixteen of five, if nothing has changed.
_ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One row, here against the other commit."""

    what: str
    here_us: Spread
    there_us: Spread
    #: Processor time a record here, as a multiple of that there, by rounds; and how many there were.
    times: Spread
    rounds: int

    @property
    def verdict(self) -> str:
        """Slower or faster, if all rounds say so, and by more than two in a hundred in the middle."""
        if self.rounds < _ROUNDS:
            return "too few rounds"
        if self.times.least > 1 and self.times.middle > 1 + _WORTH:
            return "slower"
        if self.times.most < 1 and self.times.middle < 1 - _WORTH:
            return "faster"
        return "as before"


def changes(compared: Mapping[str, Sequence[tuple[Speed, Speed]]]) -> list[Change]:
    """Of what was measured in pairs: here, and there."""
    return [
        Change(
            what=what,
            here_us=spread([here.cpu_us for here, _ in pairs]),
            there_us=spread([there.cpu_us for _, there in pairs]),
            times=spread([here.cpu_us / there.cpu_us for here, there in pairs]),
            rounds=len(pairs),
        )
        for what, pairs in compared.items()
    ]


def change_table(found: Sequence[Change], commit: str) -> str:
    """As Markdown."""
    lines = [f"| processor time a record, us | {commit} | here | times | rounds | |", "|---|--:|--:|--:|--:|---|"]
    lines += [
        f"| {each.what} | {each.there_us.middle:.2f} | {each.here_us.middle:.2f} | {each.times.middle:.2f} | "
        f"{each.times.least:.2f} to {each.times.most:.2f} | {each.verdict} |"
        for each in found
    ]
    return "\n".join(lines)


@contextmanager
def package_of(commit: str, repository: Path = _ROOT) -> Iterator[Path]:
    """A folder with nothing but that commit's `holdfast`: what measures it are the benchmarks of this tree, and the
    repository knows nothing of the folder.

    Raises:
        SystemExit: there is no such commit.
    """
    tar = subprocess.run(["git", "archive", commit, "holdfast"], cwd=repository, capture_output=True, check=False)
    if tar.returncode:
        raise SystemExit(f"--compare {commit}: {tar.stderr.decode().strip()}")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        with tarfile.open(fileobj=BytesIO(tar.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)
