"""docs/operations/audit.md shows what the report draws now."""

from __future__ import annotations

import pytest

from tests.docs.sample_audit import FOLDER, drawn

_ANEW = "draw them anew: python -m tests.docs.sample_audit"
_DRAWN = drawn()


@pytest.mark.parametrize("name", _DRAWN)
def test_a_picture_is_what_the_report_draws_now(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == _DRAWN[name], _ANEW


def test_no_picture_is_left_over() -> None:
    assert {each.name for each in FOLDER.iterdir()} == set(_DRAWN), _ANEW
