"""A client's configuration from a file: properties, JSON or TOML. No message has a value in it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.adapters.cli.arguments import parse_json, parse_properties, text_of
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OPTION = "FILE"


def read_conf(path: str, section: str | None = None) -> dict[str, object]:
    """The settings by their names: what is nested is joined by dots.

    Args:
        path: its ending says what it is (.json, .toml); else JSON where it begins with a brace, or properties.
        section: only what is under these names, such as kafka.consumer; the names without them.

    Raises:
        SettingError: it cannot be read, is of another kind, or has no such section.
    """
    found = _read(path, text_of(_OPTION, path))
    if section is not None:
        prefix = section + "."
        found = {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}
    if not found:
        where = "the file has" if section is None else f"under {section!r} the file has"
        raise SettingError(_OPTION, path, f"{where} no settings" + (": see --section" if section is not None else ""))
    return found


def _read(path: str, text: str) -> dict[str, object]:
    ending = Path(path).suffix.lower()
    if ending in (".yaml", ".yml"):
        raise SettingError(_OPTION, path, "YAML is not read: give properties, JSON or TOML")
    if ending == ".toml":
        try:
            return dict(_flat(tomllib.loads(text)))
        except tomllib.TOMLDecodeError:
            raise SettingError(_OPTION, path, "this is no TOML") from None
    if ending == ".json" or text.lstrip().startswith("{"):
        value = parse_json(text, path, _OPTION)
        if not isinstance(value, dict):
            raise SettingError(_OPTION, path, "this is no object of names and values")
        return dict(_flat(value))
    return parse_properties(text, path, _OPTION)


def _flat(nested: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in nested.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
