"""The documentation site builds without a warning: each page in the navigation, each link and anchor there."""

from __future__ import annotations

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

    shown = (site / "reference" / "api.html").read_text(encoding="utf-8")
    assert [name for name in holdfast.__all__ if f"{name}</span>" not in shown and f"{name}<" not in shown] == []
    commands = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    [choices] = [each.choices for each in parser()._actions if each.choices]
    assert [name for name in choices if f"usage: holdfast {name}" not in commands] == []


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
