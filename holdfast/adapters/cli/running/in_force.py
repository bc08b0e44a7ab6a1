"""Which settings are in force for an app that the command line starts, and where each of them comes from."""

from __future__ import annotations

import os
import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import SettingError
from holdfast.plugin.overrides import NONE, PROJECT_FILE, of_environment, of_file
from holdfast.plugin.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.plugin.app import Holdfast
    from holdfast.plugin.overrides import Overrides

OWN_FILE = "holdfast.toml"


class Setting(NamedTuple):
    """One setting, and where its value comes from."""

    name: str
    value: object
    #: "default", "code", or the variable or file.
    origin: str


def overrides(file: str | None) -> Overrides:
    """Read the file and the environment. The environment wins.

    Args:
        file: None: `holdfast.toml`, or `pyproject.toml` if it has a table [tool.holdfast], of the current folder.

    Raises:
        SettingError: a name or a value that cannot be; two files.
    """
    found = file_of(file)
    of_variables = of_environment(Settings, os.environ)
    return of_variables if found is None else of_file(Settings, found).under(of_variables)


def apply(app: Holdfast, chosen: Overrides) -> None:
    """Have the app run with these in the place of its own. Raises SettingError."""
    if not chosen.values:
        return
    settings = chosen.over(app.parts.settings)
    try:
        app.reconfigure(settings)
    except SettingError as error:
        raise chosen.named(error) from None


def in_force(code: Settings, chosen: Overrides) -> Iterator[Setting]:
    """Each setting, nested ones by their own names."""
    yield from _settings(chosen.over(code), code, Settings(), chosen)


def _settings(now: object, code: object, default: object, chosen: Overrides, above: str = "") -> Iterator[Setting]:
    for field in fields(now):  # type: ignore[arg-type]  # it is a dataclass
        name = above + field.name
        value, said, usual = (getattr(each, field.name, None) for each in (now, code, default))
        if is_dataclass(value):
            yield from _settings(value, said, usual, chosen, f"{name}.")
        elif (given := chosen.values.get(name)) is not None:
            yield Setting(name, NONE if value is None else value, f"{given.name} ({given.where})")
        else:
            yield Setting(name, NONE if value is None else value, "default" if value == usual else "code")


def file_of(file: str | None) -> Path | None:
    """The file with settings; None: there is none. See `overrides`. Raises SettingError: two files."""
    if file is not None:
        return Path(file)
    own, project = Path(OWN_FILE), Path(PROJECT_FILE)
    if not _has_table(project):
        return own if own.exists() else None
    if own.exists():
        raise SettingError(OWN_FILE, str(own), f"{PROJECT_FILE} has [tool.holdfast] as well: leave one of the two out")
    return project


def _has_table(project: Path) -> bool:
    try:
        content = tomllib.loads(project.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False  # whose file it is, says what is wrong with it
    return "holdfast" in content.get("tool", {})
