"""The README as the package's page shows it: links that hold there. Called by hatchling, for wheels and sdists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from hatchling.metadata.plugin.interface import MetadataHookInterface

if TYPE_CHECKING:
    from typing import Any

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|!?\[[^\]]*\]\([^)]*\))*)\]\((?!\w+:)([^)\s]+)\)")


class Page(MetadataHookInterface):
    """`readme` of the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Put the README there, with links to where the source is."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = absolute(text, metadata.get("urls", {}).get("Source"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def absolute(text: str, source: str | None) -> str:
    """Links to files and headings of this repository, as links to its pages; pictures as pictures. Without an address
    of it, the words alone: they would lead nowhere."""

    def link(found: re.Match[str]) -> str:
        picture, said, target = found.groups()
        if source is None:
            return str(said)
        path = f"README.md{target}" if target.startswith("#") else target
        return f"{picture}[{said}]({source}/{'raw' if picture else 'blob'}/main/{path})"

    return _LINK.sub(link, text)
