"""The documentation site beside its pages. mkdocs calls these functions by their names (see mkdocs.yml)."""

from __future__ import annotations

import argparse
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from holdfast.adapters.cli.entry import parser

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
#: `make docs` puts it there, for a site that loads nothing from elsewhere. Without it a reader's browser fetches
#: mermaid from unpkg.com, as the theme has it.
MERMAID = ROOT / ".servers" / "mermaid" / "package" / "dist" / "mermaid.tiny.js"
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_HEAD = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_SECTION = re.compile(r"<!-- (README[\w.]*): (.*) -->")
_LINK = re.compile(r"\[((?:[^\[\]]|!?\[[^\]]*\]\([^)]*\))*)\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> None:
    """Let the pages load the copy of mermaid, where there is one."""
    if MERMAID.exists():
        config.extra_javascript.append("assets/mermaid.js")


def on_files(files: Files, *, config: MkDocsConfig) -> None:
    """Copy mermaid into the site."""
    if MERMAID.exists():
        files.append(File.generated(config, "assets/mermaid.js", abs_src_path=str(MERMAID)))


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Links to files beside docs/ as links to the source, or, while that has no address, as their paths in it; the help
    of all commands, and sections of the READMEs, in the place of their marks.

    Raises:
        PluginError: a link leads to a file that is not there.
    """
    folder = posixpath.dirname(page.file.src_uri)

    def link(found: re.Match[str]) -> str:
        text, path, anchor = found.groups()
        target = posixpath.normpath(posixpath.join("docs", folder, path))
        if target.startswith("docs/"):
            return found[0]  # mkdocs looks for it
        if not (ROOT / target).exists():
            raise PluginError(f"docs/{page.file.src_uri}: {path} is not there")
        if config.repo_url:
            return f"[{text}]({config.repo_url}/blob/main/{target}{anchor or ''})"
        return f"`{target}`" if text.strip("`") in target else f"{text} (`{target}`)"

    whole = _SECTION.sub(lambda found: section(found[1], found[2], f"docs/{folder}"), markdown)
    return _LINK.sub(link, whole).replace("<!-- help -->", commands())


def on_page_content(html: str, **_: object) -> str:
    """Each cell of a table knows the head of its column: a narrow screen shows a row as a list (site.css)."""
    return _TABLE.sub(_labelled, html)


def _labelled(table: re.Match[str]) -> str:
    heads = [re.sub(r"<[^>]+>", "", each).strip().replace('"', "&quot;") for each in _HEAD.findall(table[0])]

    def row(found: re.Match[str]) -> str:
        column = iter(heads)
        return re.sub(r"<td\b", lambda _: f'<td data-head="{next(column, "")}"', found[0])

    return re.sub(r"<tr>.*?</tr>", row, table[0], flags=re.DOTALL)


def section(file: str, heading: str, folder: str) -> str:
    """A section of a README below its heading, its links as seen from `folder`."""
    text = (ROOT / file).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    if not text:
        raise PluginError(f"{file} has no section {heading!r}")
    return re.sub(r"\]\((?!\w+:|#)([^)#\s]+)", lambda found: f"]({posixpath.relpath(found[1], folder)}", text.strip())


def commands() -> str:
    """What `holdfast COMMAND --help` says, command by command."""
    return "\n".join(f"## {each.prog}\n\n```text\n{each.format_help()}```\n" for each in _leaves(parser()))


def _leaves(one: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    below = [
        deeper
        for action in one._actions  # noqa: SLF001 - argparse tells it nowhere else
        if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
        for child in action.choices.values()
        for deeper in _leaves(child)
    ]
    return below or [one]
