"""A docstring says what it is about: who comes by a search, or by a list of names, has read nothing before it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Words that point at nothing where they are the first. "These partitions go" has its noun; "These go" has none.
_POINTS_AT_NOTHING = re.compile(
    r"(It|Its|They|Their|Them|What|Who|Whom|Whose|As|The same|Those)\b"
    r"|(This|These|That)( (is|are|has|have|go|goes|was)\b|[.,:])"
)


def test_no_docstring_begins_with_a_word_that_points_at_nothing() -> None:
    found = []
    for path in sorted((ROOT / "holdfast").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                if _POINTS_AT_NOTHING.match(text):
                    found.append(f"{path.relative_to(ROOT)}: {text.splitlines()[0]}")
    assert not found, "\n".join(found)
