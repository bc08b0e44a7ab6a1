"""The row of what a record costs, and figures of consumers that run in another environment."""

from __future__ import annotations

import os
import subprocess
import tempfile
from types import MappingProxyType
from typing import TYPE_CHECKING

from tests.benchmarks.lab import multiples, speed_of
from tests.benchmarks.registry import Row, spread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.benchmarks.lab import Speed
    from tests.benchmarks.registry import Goal


def cost(
    name: str,
    own: Sequence[Speed],
    *,
    against: Sequence[Speed] | None = None,
    goal: Goal | None = None,
    note: str = "of processor a record",
) -> Row:
    """Processor time a record, the median of rounds; with `against` as a multiple of another's, round by round."""
    us = [each.cpu_us for each in own]
    by_round = None if against is None else multiples(own, against)
    return Row(
        what=name,
        figure=spread(us).middle,
        unit=" us",
        ratio=None if by_round is None else spread(by_round).middle,
        spread=spread(by_round or us),
        goal=goal,
        note=note,
    )


def elsewhere(command: Sequence[str], patience_s: float, env: Mapping[str, str] = MappingProxyType({})) -> Speed:
    """`output_of` a consumer that prints its figures (see `speed_of`)."""
    return speed_of(output_of(command, patience_s, env))


def output_of(command: Sequence[str], patience_s: float, env: Mapping[str, str] = MappingProxyType({})) -> str:
    """Run a consumer that prints what it has measured, in a home of its own that is gone afterwards.

    Raises:
        RuntimeError: it did not come to the end.
        subprocess.TimeoutExpired: nor within that time.
    """
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=patience_s,
            check=False,
            env=os.environ | {"HOME": home} | dict(env),
            cwd=home,
        )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr.strip()[-2_000:]}")
    return done.stdout
