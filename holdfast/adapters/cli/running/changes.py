"""Changes of files, for development: looked for again and again, by times and sizes. The standard library alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.adapters.cli.output import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Python's modules, and what settings are read from.
_ENDINGS = (".py", ".toml", ".env")
_NOT_OURS = frozenset({"__pycache__", "node_modules", "site-packages"})
#: A virtual environment has it.
_ENVIRONMENT = "pyvenv.cfg"
_SHOWN = 3


class FileChanges:
    """Files of some folders and of those below: not hidden ones, nor those of environments. One thread.

    Args:
        folders: where to look.
        every_s: how often it is meant to be asked.
    """

    def __init__(self, folders: Sequence[Path], every_s: float = 0.5) -> None:
        self.every_s = every_s
        self._folders = folders
        self._files = dict(self._look())

    def seen(self) -> str:
        """Look, and tell in words what has changed since the last look; "" = nothing."""
        files = dict(self._look())
        before, self._files = self._files, files
        changed = sorted(path for path in before.keys() | files.keys() if before.get(path) != files.get(path))
        if not changed:
            return ""
        names = ", ".join(os.path.relpath(each) for each in changed[:_SHOWN])
        more = f" and {count(len(changed) - _SHOWN, 'file')}" if len(changed) > _SHOWN else ""
        return f"{names}{more} changed"

    def _look(self) -> Iterator[tuple[str, tuple[int, int]]]:
        for folder in self._folders:
            yield from _files_of(str(folder))


def _files_of(folder: str) -> Iterator[tuple[str, tuple[int, int]]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:  # it has just gone, or is closed to us
        return
    if any(each.name == _ENVIRONMENT for each in entries):
        return
    for each in entries:
        try:
            if each.is_dir(follow_symlinks=False):
                if not each.name.startswith(".") and each.name not in _NOT_OURS:
                    yield from _files_of(each.path)
            elif each.name.endswith(_ENDINGS):
                found = each.stat()
                yield each.path, (found.st_mtime_ns, found.st_size)
        except OSError:  # as above
            continue


def watched(app_dir: str) -> FileChanges:
    """The current folder, and that of the app if it is elsewhere."""
    here, own = Path.cwd(), Path(app_dir).resolve()
    return FileChanges([here] if own.is_relative_to(here) else [here, own])
