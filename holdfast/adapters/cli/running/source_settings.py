"""The settings of a source in force, for `holdfast config`. No credential is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING

from holdfast.adapters.cli.running.in_force import Setting
from holdfast.adapters.cli.running.sources import kafka_settings_of
from holdfast.plugin.overrides import NONE
from holdfast.plugin.secret_names import MASK, is_secret
from holdfast.printable import without_credentials

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.adapters.cli.running.sources import Source


def settings_of(source: Source) -> Iterator[Setting]:
    """Each, and where it comes from. Raises SettingError: the source cannot work with what the program says."""
    yield Setting("source", type(source).__name__, "code")
    found = kafka_settings_of(source)
    if found is not None:
        for name, value, origin in found:
            yield Setting(f"source.{name}", _shown(value), origin)
        return
    own = getattr(source, "_settings", None) or getattr(source, "_config", None)
    if own is None or not is_dataclass(own):
        yield Setting("source.group", source.group, "code")
        return
    for field in fields(own):
        value = getattr(own, field.name)
        # What its own repr leaves out is a credential, or may carry one.
        hidden = value is not None and (not field.repr or is_secret(field.name))
        yield Setting(f"source.{field.name}", MASK if hidden else _shown(value), _origin(field, value))


def _origin(field: object, value: object) -> str:
    default = getattr(field, "default", MISSING)
    made = getattr(field, "default_factory", MISSING)
    usual = made() if made is not MISSING else default
    return "default" if usual is not MISSING and value == usual else "code"


def _shown(value: object) -> object:
    """Make it fit for JSON."""
    if value is None:
        return NONE
    if isinstance(value, int | float | bool):
        return value
    return without_credentials(str(dict(value)) if isinstance(value, Mapping) else str(value))
