"""The reference shows `#: ...` above an attribute as its docstring."""

from __future__ import annotations

from pathlib import Path

import griffe


class Comments(griffe.Extension):
    """An extension of griffe, which reads the source for mkdocstrings."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: object) -> None:
        """Give an attribute without a docstring the comment above it."""
        if attr.docstring is not None or attr.lineno is None or not isinstance(attr.filepath, Path):
            return
        lines = attr.filepath.read_text(encoding="utf-8").splitlines()
        first = attr.lineno - 1
        while first > 0 and lines[first - 1].lstrip().startswith("#:"):
            first -= 1
        said = "\n".join(line.strip().removeprefix("#:").removeprefix(" ") for line in lines[first : attr.lineno - 1])
        if said:
            attr.docstring = griffe.Docstring(said, lineno=first + 1, parent=attr)
