"""The documentation site beside its pages. mkdocs calls these functions by their names (see mkdocs.yml)."""

from __future__ import annotations

import argparse
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from holdfast.adapters.cli.entry import parser

if TYPE_CHECKING:
    from jinja2 import Environment
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
#: `make docs` puts it there, for a site that loads nothing from elsewhere. Without it a reader's browser fetches
#: mermaid from unpkg.com, as the theme has it.
MERMAID = ROOT / ".servers" / "mermaid" / "package" / "dist" / "mermaid.tiny.js"
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> None:
    """Let the pages load the copy of mermaid, where there is one."""
    if MERMAID.exists():
        config.extra_javascript.append("assets/mermaid.js")


def on_files(files: Files, *, config: MkDocsConfig) -> None:
    """Copy mermaid into the site."""
    if MERMAID.exists():
        files.append(File.generated(config, "assets/mermaid.js", abs_src_path=str(MERMAID)))


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Links to files beside docs/ as links to the source; the help of all commands in the place of its mark.

    Raises:
        PluginError: a link leads to a file that is not there.
    """
    folder = posixpath.dirname(page.file.src_uri)

    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, found[1]))
        if target.startswith("docs/"):
            return found[0]  # mkdocs looks for it
        if not (ROOT / target).exists():
            raise PluginError(f"docs/{page.file.src_uri}: {found[1]} is not there")
        return f"]({config.repo_url}/blob/main/{target}{found[2] or ''})"

    return _LINK.sub(link, markdown).replace("<!-- help -->", commands())


def on_env(env: Environment, *, config: MkDocsConfig, **_: object) -> Environment:
    """No button for the repository at the head of each page while its address is one that leads nowhere."""
    if config.repo_url and urlsplit(config.repo_url).hostname == "holdfast.example":
        config.repo_url = ""
    return env


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
