"""Each page of docs/zh is its English page in Chinese: the same headings, code, tables, lists, links and pictures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_readme_zh import _BLOCK, _without_shell_comments

DOCS = Path(__file__).parents[2] / "docs"
#: The home page is made of README.zh.md's sections.
CHINESE = sorted(each for each in (DOCS / "zh").glob("*.md") if each.name != "index.md")
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")


def of(page: Path) -> tuple[Path, str, str]:
    """The English page, its text and the Chinese one's."""
    text = page.read_text(encoding="utf-8")
    [link] = re.findall(r"^\[English\]\((.*)\)$", text, re.MULTILINE)
    english = (page.parent / link).resolve()
    return english, english.read_text(encoding="utf-8"), text


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: page.name)
def test_a_chinese_page_has_all_that_its_english_page_has(page: Path) -> None:
    _, english, chinese = of(page)
    assert _skeleton(chinese) == _skeleton(english)
    assert _code(chinese) == _code(english)


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: page.name)
def test_each_leads_to_the_other_and_both_to_the_same_pages(page: Path) -> None:
    english, its, chinese = of(page)
    translated = {each.resolve(): of(each)[0] for each in CHINESE}
    ours = [(page.parent / link).resolve() for link in _LINK.findall(_BLOCK.sub("", chinese))]
    theirs = [(english.parent / link).resolve() for link in _LINK.findall(_BLOCK.sub("", its))]
    assert (ours[0], theirs[0]) == (english, page.resolve())
    assert [translated.get(each, each) for each in ours[1:]] == theirs[1:]


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: page.name)
def test_no_sentence_of_a_chinese_page_was_left_in_english(page: Path) -> None:
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", _BLOCK.sub("", of(page)[2]))
    assert re.findall(r"(?:[A-Za-z']+[ ,]+){6,}[A-Za-z']+", prose) == []


def _skeleton(text: str) -> list[str]:
    """What its lines begin with: headings, tables, lists."""
    found: list[str] = re.findall(r"^(#+ |\| |\|--|- |\d\. )", _BLOCK.sub("", text), re.MULTILINE)
    return found


def _code(text: str) -> list[str]:
    """Its blocks; of a diagram what stands before a text of its own."""
    return [
        re.sub(r'(?<=:).*|"[^"]*"|(?<=\[)[^\]"]*|(?<= as ).*|(?<=\|)[^|]*(?=\|)|(?<=-\. ).*(?= \.->)', "", block)
        if block.startswith("```mermaid")
        else _without_shell_comments(block)
        for block in _BLOCK.findall(text)
    ]
