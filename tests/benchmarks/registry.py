"""What a benchmark is, and which there are. A new one is a module `bench_<what>.py` with one `@benchmark`."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import tests.benchmarks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.benchmarks.lab import Lab

    Run = Callable[[Lab], Sequence["Row"]]

_FOUND: dict[str, Run] = {}
_BY_NAME_ALONE: set[str] = set()


class Spread(NamedTuple):
    """The rounds of one figure: least, median, most."""

    least: float
    middle: float
    most: float


def spread(values: Sequence[float]) -> Spread:
    """Of one or more."""
    return Spread(min(values), median(values), max(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A bound on a row's ratio, or on its figure where it has no ratio."""

    value: float
    at_least: bool = True
    unit: str = ""

    def met(self, measured: float) -> bool:
        """Whether the measured value is on the right side."""
        return measured >= self.value if self.at_least else measured <= self.value

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.value:g}{self.unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    what: str
    #: The measured value in `unit`.
    figure: float
    unit: str
    #: Against the row that it is compared with, of the same run.
    ratio: float | None = None
    #: Of the rounds: of the ratio, or of the figure where there is none.
    spread: Spread | None = None
    goal: Goal | None = None
    #: What a reader has to know besides (processor time).
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None: there is none."""
        return None if self.goal is None else self.goal.met(self.figure if self.ratio is None else self.ratio)


def benchmark(name: str, *, by_name_alone: bool = False) -> Callable[[Run], Run]:
    """Register a function that measures and returns rows.

    Args:
        name: for `--only`.
        by_name_alone: it is no part of a run that names none: it wants more than that run's environment.
    """

    def register(run: Run) -> Run:
        _FOUND[name] = run
        if by_name_alone:
            _BY_NAME_ALONE.add(name)
        return run

    return register


def benchmarks() -> dict[str, Run]:
    """All of them, by name."""
    for module in pkgutil.iter_modules(tests.benchmarks.__path__):
        if module.name.startswith("bench_"):
            importlib.import_module(f"tests.benchmarks.{module.name}")
    return dict(_FOUND)


def standing() -> list[str]:
    """Those of a run that names none; `benchmarks` has found them."""
    return [name for name in _FOUND if name not in _BY_NAME_ALONE]
