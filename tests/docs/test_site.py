"""The documentation site builds without a warning: each page in the navigation, each link and anchor there."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from holdfast.adapters.cli.entry import parser
from tests.docs.test_readme import README

ROOT = Path(__file__).parents[2]
#: What a reader's browser may fetch from elsewhere: nothing. Links that a reader follows are not meant.
_FETCHED = {"script": "src", "img": "src", "link": "href"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_built(site: Path) -> None:
    pages = {each.relative_to(ROOT / "docs").with_suffix(".html") for each in (ROOT / "docs").rglob("*.md")}
    assert {each for each in pages if not (site / each).exists()} == set()


def test_a_page_fetches_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        found = _Fetched()
        found.feed(page.read_text(encoding="utf-8"))
        assert found.elsewhere == [], page.name


def test_the_reference_has_every_public_name_and_every_command(site: Path) -> None:
    import holdfast  # noqa: PLC0415 - beside its own name below

    shown = "".join(each.read_text(encoding="utf-8") for each in (site / "reference" / "api").glob("*.html"))
    assert [name for name in holdfast.__all__ if f"{name}</span>" not in shown and f"{name}<" not in shown] == []
    commands = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    [choices] = [each.choices for each in parser()._actions if each.choices]
    assert [name for name in choices if f"usage: holdfast {name}" not in commands] == []


def test_a_signature_shows_values_and_types_that_a_reader_can_have(site: Path) -> None:
    for page in (site / "reference" / "api").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        for signature in re.findall(r'<div class="doc-signature highlight"><pre>(.*?)</pre></div>', text, re.DOTALL):
            plain = html.unescape(re.sub(r"<[^>]+>", "", signature))
            assert re.findall(r"(?:[=:] *|-> )(?:[\d*. ]*)(_\w+)", plain) == [], (page.name, plain)


def test_each_cell_of_a_table_says_its_column_for_narrow_screens(site: Path) -> None:
    seen = 0
    for page in site.rglob("*.html"):
        for table in re.findall(r"<table>.*?</table>", page.read_text(encoding="utf-8"), re.DOTALL):
            heads = [
                html.unescape(re.sub(r"<[^>]+>", "", each)) for each in re.findall(r"<th\b.*?</th>", table, re.DOTALL)
            ]
            for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL):
                said = re.findall(r'<td data-head="([^"]*)"', row)
                assert [html.unescape(each) for each in said] in ([], [each.strip() for each in heads]), page.name
                seen += len(said)
    assert seen > 1000


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("install", "index.html"),
        ("troubleshooting", "operations/troubleshooting.html"),
        ("exactly once", "explanation/promises.html"),
        ("redis down", "operations/troubleshooting.html"),
        ("dead letter", "how-to/dead-letters.html"),
        ("重平衡风暴", "zh/storms.html"),
    ],
)
def test_the_search_finds_the_page(site: Path, words: str, page: str) -> None:
    """A word in a title counts a thousand times as much as one in a text; of titles the shorter one is nearer. Looked
    for are words that begin so: none may be cut to its stem."""
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert index["config"]["pipeline"] == ["stopWordFilter"]
    asked = words.lower().split()

    def near(section: dict[str, str]) -> tuple[int, int]:
        title = re.findall(r"\w+", section["title"].lower())
        return sum(any(word.startswith(each) for word in title) for each in asked), -len(title)

    assert max(index["docs"], key=near)["location"].partition("#")[0] == page


def test_each_diagram_is_drawn_by_the_browser(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        drawn = (site / page.relative_to(ROOT / "docs").with_suffix(".html")).read_text(encoding="utf-8")
        assert drawn.count('<pre class="mermaid">') == page.read_text(encoding="utf-8").count("```mermaid"), page.name


def test_no_diagram_has_a_semicolon() -> None:
    """Mermaid ends a statement there, also in the middle of a text: then the page shows an error in its place."""
    for page in (ROOT / "docs").rglob("*.md"):
        for diagram in re.findall(r"```mermaid\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            assert ";" not in diagram, page.name


def test_each_link_of_a_page_leads_to_a_file_of_the_site_or_to_an_address_that_is_named_in_a_page(site: Path) -> None:
    """A file of the repository is named by its path: the repository has no public address yet."""
    named = "".join(each.read_text(encoding="utf-8") for each in (ROOT / "docs").rglob("*.md"))
    for page in site.rglob("*.html"):
        for target in re.findall(r'<a [^>]*href="?([^"\s>#]+)', page.read_text(encoding="utf-8")):
            if target.startswith(("http:", "https:")):
                assert target in named or "squidfunk.github.io" in target, (page.name, target)
            elif not target.startswith("mailto:"):
                at = site if target.startswith("/") else page.parent
                assert (at / target.lstrip("/")).exists(), (page.name, target)


def test_every_page_can_be_reached_from_the_readme() -> None:
    assert set(re.findall(r"\]\((docs/[\w/-]+\.md)\)", README)) >= {"docs/index.md", "docs/tutorial.md"}


class _Fetched(HTMLParser):
    """Addresses outside the site that a page loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        address = said.get(_FETCHED.get(tag, "")) or ""
        if address.startswith(("http:", "https:", "//")) and said.get("rel") != "canonical":
            self.elsewhere.append(address)
