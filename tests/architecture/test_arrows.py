"""The arrows between the packages hold, and the face is what it says."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from importlib.metadata import EntryPoint
from pathlib import Path

import grimp
import pytest

import holdfast
from holdfast.adapters.cli import main

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


def test_no_module_is_in_a_circle_with_another_not_even_for_types(graph: grimp.ImportGraph) -> None:
    inside = {each for each in graph.modules if each.startswith("holdfast.")}
    imports = {each: graph.find_modules_directly_imported_by(each) & inside for each in inside}
    TopologicalSorter(imports).prepare()  # raises CycleError, which names them


def test_no_module_imports_the_face(graph: grimp.ImportGraph) -> None:
    assert graph.find_modules_that_directly_import("holdfast") == set()


@pytest.mark.parametrize(
    ("package", "homes"),
    [
        ("confluent_kafka", ("holdfast.adapters.kafka.",)),
        ("opentelemetry", ("holdfast.adapters.otel.",)),
        ("prometheus_client", ("holdfast.adapters.prometheus.",)),
        ("pyspark", ("holdfast.adapters.spark.",)),
        ("pyarrow", ("holdfast.adapters.spark.", "holdfast.adapters.parquet.")),
        ("psycopg", ("holdfast.adapters.spark.writers.postgres._psycopg.", "holdfast.adapters.sql._psycopg.")),
        ("redis", ("holdfast.dedup.",)),
        ("tests", ()),
    ],
)
def test_a_client_library_is_known_in_its_place_only(
    graph: grimp.ImportGraph, package: str, homes: tuple[str, ...]
) -> None:
    strangers = {each for each in importers(graph, package) if not f"{each}.".startswith(homes)}
    assert strangers == set()


def test_the_library_reads_a_clock_in_one_place_only(graph: grimp.ImportGraph) -> None:
    assert importers(graph, "time") == {"holdfast.timing"}


def test_every_module_can_be_imported() -> None:
    for path in sorted((ROOT / "holdfast").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        module = importlib.import_module(name)
        assert inspect.ismodule(module)


def test_the_library_does_not_import_its_command_line() -> None:
    code = "import holdfast, sys; assert not [each for each in sys.modules if each.startswith('holdfast.adapters')]"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_importing_the_package_loads_nothing_before_a_name_is_asked_for() -> None:
    """No client, no event loop, no part of its own: a program that wants one name waits for that one."""
    code = (
        "import sys; before = set(sys.modules); import holdfast; "
        "heavy = {'redis', 'tenacity', 'asyncio', 'confluent_kafka', 'prometheus_client', 'logging', 'json'}; "
        "new = set(sys.modules) - before; "
        "assert {each for each in new if each.startswith('holdfast')} == {'holdfast'}, new; "
        "assert not heavy & new, heavy & new; "
        "holdfast.Settings; assert 'holdfast.plugin.settings' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_a_store_on_one_server_loads_no_other_kind_of_redis_and_no_decorator() -> None:
    code = (
        "import sys; from holdfast import Holdfast, RedisClaims, Settings; RedisClaims.from_url('redis://a:1/0'); "
        "more = ('redis_cluster', 'redis_sentinel', 'dedup.calls.process', 'dedup.open', 'overrides', 'audit.book'); "
        "found = [each for each in sys.modules if each.startswith('holdfast.') and any(map(each.count, more))]; "
        "assert not found, found; "
        "RedisClaims.from_url('redis+sentinel://a:1/name/0'); assert 'holdfast.dedup.redis_sentinel' in sys.modules; "
        "RedisClaims.from_url('redis+cluster://a:1'); assert 'holdfast.dedup.redis_cluster' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_command_is_what_the_package_says() -> None:
    said = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]["holdfast"]
    assert EntryPoint(name="holdfast", group="console_scripts", value=said).load() is main


def test_the_face_is_what_it_is_on_purpose() -> None:
    """A name is added or taken away here too, and in the changelog: users import these."""
    assert sorted(holdfast.__all__) == [
        "Audit",
        "BatchFailed",
        "BatchOf",
        "DeadLetterLimit",
        "Deserializer",
        "Fenced",
        "FileEvents",
        "HandlerCall",
        "Holdfast",
        "HoldfastError",
        "KeyBusy",
        "Letter",
        "LogPlace",
        "LoopAudit",
        "MemoryClaims",
        "Outputs",
        "Partition",
        "Ramp",
        "Record",
        "RedisClaims",
        "RedisCoordinator",
        "Retry",
        "Settings",
        "Skipped",
        "Unretriable",
        "current_claim",
        "header",
        "idempotent",
        "make_record",
        "record_key",
    ]
    assert [each for each in holdfast.__all__ if not hasattr(holdfast, each)] == []
