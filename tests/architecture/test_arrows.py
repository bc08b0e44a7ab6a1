"""The arrows between the packages hold, and the face is what it says."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

import holdfast

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("holdfast", include_external_packages=True, cache_dir=None)


def importers(graph: grimp.ImportGraph, package: str) -> set[str]:
    """Modules that import an external package, which need not be in the graph."""
    return graph.find_modules_that_directly_import(package) if package in graph.modules else set()


def test_every_contract_of_the_arrows_is_kept() -> None:
    # In a process of its own: it configures logging, which silences the loggers that are there.
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    ran = subprocess.run(
        [sys.executable, "-c", code, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 broken" in ran.stdout
    assert " 0 kept" not in ran.stdout


def test_no_module_imports_the_face(graph: grimp.ImportGraph) -> None:
    assert graph.find_modules_that_directly_import("holdfast") == set()


@pytest.mark.parametrize(
    ("package", "home"), [("confluent_kafka", "holdfast.adapters.kafka"), ("redis", "holdfast.dedup")]
)
def test_a_client_library_is_known_in_one_place_only(graph: grimp.ImportGraph, package: str, home: str) -> None:
    strangers = {each for each in importers(graph, package) if not f"{each}.".startswith(f"{home}.")}
    assert strangers == set()


def test_the_library_reads_a_clock_in_one_place_only(graph: grimp.ImportGraph) -> None:
    assert importers(graph, "time") <= {"holdfast.timing"}


def test_every_module_can_be_imported() -> None:
    for path in sorted((ROOT / "holdfast").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        module = importlib.import_module(name)
        assert inspect.ismodule(module)


def test_the_face_is_what_it_is_on_purpose() -> None:
    """A name is added or taken away here too, and in the changelog: users import these."""
    assert sorted(holdfast.__all__) == [
        "BatchFailed",
        "BatchOf",
        "Holdfast",
        "HoldfastError",
        "MemoryClaims",
        "Partition",
        "Record",
        "RedisClaims",
        "Retry",
        "Settings",
        "Unretriable",
        "header",
        "record_key",
    ]
    assert [each for each in holdfast.__all__ if not hasattr(holdfast, each)] == []
