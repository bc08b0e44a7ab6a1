"""What is published: the sdist has all of the repository, and links hold on the package's page."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
import traceback
import types
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError, SettingError, StaticIdTaken

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
_WITH_PAGES = ("docs", "examples", "holdfast")
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """tools/page.py; hatchling, which calls it, is there while something is built and not otherwise."""
    interface = types.ModuleType("hatchling.metadata.plugin.interface")
    interface.MetadataHookInterface = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    spec = importlib.util.spec_from_file_location("page", ROOT / "tools" / "page.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def headings(text: str) -> set[str]:
    """Their anchors, as the hosting platforms make them."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return {
        re.sub(r"[^\w\- ]", "", said.replace("`", "").lower()).replace(" ", "-")
        for said in re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    }


@pytest.mark.parametrize(
    "file",
    sorted({*ROOT.glob("*.md"), *(each for folder in _WITH_PAGES for each in (ROOT / folder).rglob("*.md"))}),
    ids=str,
)
def test_every_link_between_the_repository_s_pages_leads_to_something_that_is_there(file: Path) -> None:
    text = re.sub(r"```.*?```", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)", text):
        at = (file.parent / target) if target else file
        assert at.exists(), target
        if anchor and at.suffix == ".md":
            assert anchor in headings(at.read_text(encoding="utf-8")), f"{target}#{anchor}"


def kinds(error: type[HoldfastError]) -> set[type[HoldfastError]]:
    return {error, *(each for below in error.__subclasses__() for each in kinds(below))}


def test_the_page_that_an_error_names_is_there() -> None:
    named = [each for each in kinds(HoldfastError) if each.page]
    assert len(named) > 15
    for error in named:
        assert (ROOT / "docs" / error.page).is_file(), error
    site = re.search(r"^site_url: (.*)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert site is None, "the site has an address: let errors name it, instead of the repository's folder"


def test_a_traceback_ends_with_that_page() -> None:
    said = traceback.format_exception(StaticIdTaken("billing-0 is taken"))
    assert said[-1] == "docs: docs/how-to/static-members.md\n"
    assert str(StaticIdTaken("billing-0 is taken")) == "billing-0 is taken"
    assert traceback.format_exception(SettingError("workers", -1, "use 1"))[-1].endswith("workers=-1: use 1\n")


def test_no_link_of_the_package_page_is_relative(page: types.ModuleType) -> None:
    for source in (PROJECT["project"].get("urls", {}).get("Source"), "https://s", None):
        text = page.absolute(README, source)
        assert re.findall(r"\]\((?!https://)[^)\s]*\)", text) == []
    assert page.absolute("![p](docs/p.png) [a](docs/a.md) [x](https://y)", None) == "p a [x](https://y)"
    assert page.absolute("[a](docs/a.md#b) [c](#c) ![p](docs/p.png) [x](https://y)", "https://s") == (
        "[a](https://s/blob/main/docs/a.md#b) [c](https://s/blob/main/README.md#c) "
        "![p](https://s/raw/main/docs/p.png) [x](https://y)"
    )


def test_the_sdist_has_all_that_the_repository_has() -> None:
    included = {each.lstrip("/") for each in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]}
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():  # in an sdist: then it has what this test looks at
        assert all((ROOT / each).exists() for each in included)
        return
    tracked = subprocess.run([git, "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    assert {each.split("/")[0] for each in tracked if each} - included <= {".gitignore", "pyproject.toml"}


#: The distribution; `holdfast` is what Python imports, and on the public index another project.
_NAME = "holdfast-mq"
_INSTALLED = re.compile(r"(?:pip install|uv add|uv pip install|poetry add)\b(?P<what>[^\n`#]*)")
_EXTRAS = re.compile(r"(?P<name>[\w.-]+)\[(?P<extras>[a-z0-9, -]+)\]")
_TEXTS = ("*.md", "*.py", "*.sh", "*.toml", "*.yml", "*.yaml", "*Dockerfile*", "*.txt")


def texts() -> list[tuple[Path, str]]:
    """All that may tell a user what to install."""
    found = [*ROOT.glob("*.md"), ROOT / "pyproject.toml"]
    for folder in (*_WITH_PAGES, "tools"):
        found += [each for pattern in _TEXTS for each in (ROOT / folder).rglob(pattern)]
    return [(each, each.read_text(encoding="utf-8")) for each in found if "__pycache__" not in each.parts]


def test_each_line_that_says_what_to_install_names_the_distribution() -> None:
    seen = 0
    for file, text in texts():
        for found in _INSTALLED.finditer(text):
            for word in re.findall(r"holdfast[\w-]*", found["what"]):
                seen += 1
                assert word == _NAME, f"{file}: {found[0]}"
    assert seen > 30
    assert PROJECT["project"]["name"] == _NAME


def test_the_extras_that_are_named_anywhere_are_there() -> None:
    there, seen = PROJECT["project"]["optional-dependencies"], 0
    for file, text in texts():
        for found in _EXTRAS.finditer(text):
            if found["name"] not in ("holdfast", _NAME):
                continue
            assert found["name"] == _NAME, f"{file}: {found[0]}"
            assert {each.strip() for each in found["extras"].split(",")} <= set(there), f"{file}: {found[0]}"
            seen += 1
    assert seen > 40


#: Keep a Changelog's, and the two that a reader of a first version looks for.
_KINDS = ("Highlights", "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Known limits")


def test_the_changelog_keeps_its_form() -> None:
    """Versions, and in each the kinds of changes, once each and in that order. A line is for users: what was mended in
    code that no version had is in the history of the repository."""
    _, *versions = re.split(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for version, text in zip(versions[::2], versions[1::2], strict=True):
        assert re.fullmatch(r"\[Unreleased\]|\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", version)
        kinds = re.findall(r"^### (.*)$", text, re.MULTILINE)
        assert kinds == [each for each in _KINDS if each in kinds], version
        assert len(text.split()) < 2000, f"{version}: what does a user of the version before have to know?"
    released = len(versions) > 2
    assert released or "### Fixed" not in versions[1], "nobody had what is mended: say what there is"
