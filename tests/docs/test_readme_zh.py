"""README.zh.md is README.md in Chinese: the same headings, code, promises, pictures and links, in the same order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"```.*?```", re.DOTALL)
#: The comments of a shell's commands are in the language of the page.
_SHELL_COMMENT = re.compile(r"(?<=  )# .+$", re.MULTILINE)


@pytest.fixture(scope="module")
def both() -> tuple[str, str]:
    english, chinese = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md"))
    return english, chinese


def test_the_code_is_the_same(both: tuple[str, str]) -> None:
    english, chinese = ([_without_shell_comments(block) for block in _BLOCK.findall(text)] for text in both)
    assert chinese == english
    assert len(english) > 5


def _without_shell_comments(block: str) -> str:
    return _SHELL_COMMENT.sub("#", block) if block.startswith("```sh\n") else block


def test_the_headings_have_the_same_structure(both: tuple[str, str]) -> None:
    english, chinese = (re.findall(r"^(#+) ", _BLOCK.sub("", text), re.MULTILINE) for text in both)
    assert chinese == english


@pytest.mark.parametrize(
    "pattern",
    [
        r"^\| (P\d) \| \*\*",  # the promises
        r"\]\(((?!#)[^)]+)\)",  # links and pictures; a heading's own anchor is in its language
        r"^(- |\| |\|--)",  # lists and tables, line by line
    ],
)
def test_what_does_not_depend_on_the_language_is_the_same(both: tuple[str, str], pattern: str) -> None:
    english, chinese = (re.findall(pattern, _BLOCK.sub("", text), re.MULTILINE) for text in both)
    found = [each.replace("README.zh.md", "README.md") for each in english], [_in_english(each) for each in chinese]
    assert found[1] == found[0]


def _in_english(link: str) -> str:
    """The page of which a Chinese one is the translation."""
    found = ROOT / link
    if found.parent.name != "zh" or found.name == "index.md":
        return link.replace("docs/zh/", "docs/")
    [english] = re.findall(r"^\[English\]\((.*)\)$", found.read_text(encoding="utf-8"), re.MULTILINE)
    return str((found.parent / english).resolve().relative_to(ROOT))


def test_no_sentence_was_left_in_english(both: tuple[str, str]) -> None:
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", _BLOCK.sub("", both[1]))
    assert re.findall(r"(?:[A-Za-z']+[ ,]+){6,}[A-Za-z']+", prose) == []


def test_the_readme_is_short(both: tuple[str, str]) -> None:
    assert max(len(text.splitlines()) for text in both) <= 250
