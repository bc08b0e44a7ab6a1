"""DESIGN.md and its two companions name what exists, and its table of what stands still has every state."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from holdfast.plugin.engine.partition.ownership import Phase
from holdfast.plugin.engine.record.entry import EntryState

ROOT = Path(__file__).parents[2]
DESIGN = (ROOT / "DESIGN.md").read_text(encoding="utf-8")
#: With the rules of the store and the way of a batch, which stand beside their code.
TEXT = DESIGN + "".join(
    (ROOT / "holdfast" / folder / "README.md").read_text(encoding="utf-8") for folder in ("dedup", "adapters/spark")
)
_MEMBER = re.compile(r"`([A-Z]\w+)\.(\w+)(?:\([^`]*\))?`")
_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
_FILE = re.compile(r"`([\w/.]+/[\w.]+\.(?:py|lua|md|toml))`")
_FOLDER = re.compile(r"`([\w/]+)/`")
#: Folders that paths in the text begin in.
_BASES = (
    "",
    *("holdfast", "holdfast/plugin", "holdfast/plugin/engine", "holdfast/dedup", "holdfast/adapters"),
    *("holdfast/adapters/cli", "holdfast/testing", "holdfast/tools", "tests", "tests/simulation"),
)


def _members() -> dict[str, set[str]]:
    """By the names of classes: their methods, fields and attributes, and those of classes that they come of."""
    found: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = defaultdict(set)
    named = {name for name, _ in _MEMBER.findall(TEXT)}
    for path in (ROOT / "holdfast").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not named.intersection(_CLASS.findall(text)):
            continue
        for each in ast.walk(ast.parse(text)):
            if isinstance(each, ast.ClassDef):
                bases[each.name] |= {base.id for base in each.bases if isinstance(base, ast.Name)}
                for inner in ast.walk(each):
                    if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        found[each.name].add(inner.name)
                    elif isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name):
                        found[each.name] |= {inner.attr} if inner.value.id == "self" else set()
                    elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                        found[each.name].add(inner.id)
    for name, of in bases.items():
        found[name].update(*(found[base] for base in of if base in found))
    return found


def test_each_method_and_field_that_the_design_names_is_there() -> None:
    members = _members()
    named = set(_MEMBER.findall(TEXT))
    assert len(named) > 20
    assert sorted(f"{name}.{member}" for name, member in named if member not in members.get(name, ())) == []


def test_each_folder_that_the_design_names_is_there() -> None:
    named = set(_FOLDER.findall(DESIGN))
    assert len(named) > 20
    assert sorted(path for path in named if not any((ROOT / base / path).is_dir() for base in _BASES)) == []


def test_each_file_that_the_design_names_is_there() -> None:
    named = set(_FILE.findall(TEXT))
    assert named
    assert sorted(path for path in named if not any((ROOT / base / path).exists() for base in _BASES)) == []


@pytest.mark.parametrize("state", [*EntryState, *Phase], ids=lambda state: f"{type(state).__name__}.{state.name}")
def test_the_table_of_what_stands_still_has_every_state(state: EntryState | Phase) -> None:
    start = DESIGN.index("## Why a partition stands still")
    table = DESIGN[start : DESIGN.index("\n## ", start + 1)]
    assert f"`{state.name}`" in table
