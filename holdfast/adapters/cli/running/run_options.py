"""The options of `holdfast run` itself: of its command line, else of the environment, else of the file, or by default.

`--processes 4` is HOLDFAST_RUN_PROCESSES=4, or `processes = 4` in the file's table [run].
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.cli.arguments import at_least_0, port, processes, span_s, token
from holdfast.adapters.cli.running.in_force import Setting, file_of
from holdfast.adapters.cli.running.restarts import DEFAULT_LIMIT
from holdfast.errors import SettingError
from holdfast.plugin.overrides import ENVIRONMENT, NONE, RUN_PREFIX, RUN_TABLE, is_service_link, run_table
from holdfast.plugin.secret_names import MASK
from holdfast.plugin.setting_names import meant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

LEVELS = ("debug", "info", "warning", "error")
#: What Python's collector of reference cycles does: see `process.freeze`; or what it does by default.
FROZEN = "frozen"
COLLECTORS = (FROZEN, "default")
#: The option whose value is in no list, and in no error.
_MASKED = "token"
#: Of static members, in the place of a prefix: this host's name.
_HOST = "true"


class _Said(NamedTuple):
    """A value of one place."""

    text: str
    #: As it is called there.
    name: str
    where: str

    def error(self, remedy: str) -> SettingError:
        text = MASK if self.name.lower().endswith(_MASKED) else self.text
        return SettingError(self.name, text, remedy, origin=self.where)


def _one_of(values: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in values:
            raise argparse.ArgumentTypeError(f"use one of {', '.join(values)}")
        return text

    return read


def _prefix(text: str) -> str:
    """The prefix of static ids; "" = this host's name, as `--static` alone says."""
    if not text:
        raise argparse.ArgumentTypeError(f"say {_HOST} for this host's name, {NONE}, or a prefix")
    return "" if text == _HOST else text


def _some(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("it is empty")
    return text


#: By their names in the file: how a text is read, and the default. Where that is None, `none` says so too.
OPTIONS: dict[str, tuple[Callable[[str], object], object]] = {
    "processes": (processes, 1),
    "static": (_prefix, None),
    "restarts": (at_least_0, DEFAULT_LIMIT),
    "grace": (span_s, None),
    "port": (port, None),
    "host": (_some, "127.0.0.1"),
    "token": (token, None),
    "health_file": (_some, None),
    "log_level": (_one_of(LEVELS), "info"),
    "gc": (_one_of(COLLECTORS), FROZEN),
}


def settle(options: argparse.Namespace, file: str | None) -> list[Setting]:
    """Give the command line's options the values that are in force.

    Args:
        options: what the command line says; what it does not say is not in it.
        file: as `in_force.overrides`.

    Returns:
        Each of them, and where it comes from.

    Raises:
        SettingError: a name or a value that cannot be, by its name in its place.
    """
    said = _of_file(file) | _of_environment(os.environ)
    found = []
    for name, (parse, default) in OPTIONS.items():
        origin = "default"
        if hasattr(options, name):
            origin = f"--{name.replace('_', '-')} (command line)"
        elif name in said:
            setattr(options, name, _read(said[name], parse, default))
            origin = f"{said[name].name} ({said[name].where})"
        else:
            setattr(options, name, default)
        value = getattr(options, name)
        shown = NONE if value is None else _HOST if name == "static" and not value else value
        shown = MASK if name == _MASKED and value is not None else shown
        found.append(Setting(f"{RUN_TABLE}.{name}", shown, origin))
    return found


def _read(said: _Said, parse: Callable[[str], object], default: object) -> object:
    if default is None and said.text == NONE:
        return None
    try:
        return parse(said.text)
    except argparse.ArgumentTypeError as error:
        raise said.error(str(error)) from None


def _of_environment(environment: Mapping[str, str]) -> dict[str, _Said]:
    def texts() -> Iterator[tuple[str, _Said]]:
        for name, text in environment.items():
            if name.startswith(RUN_PREFIX) and not is_service_link(name, text):
                yield name.removeprefix(RUN_PREFIX).lower(), _Said(text.strip(), name, ENVIRONMENT)

    return _known(texts(), lambda name: RUN_PREFIX + name.upper())


def _of_file(file: str | None) -> dict[str, _Said]:
    path = file_of(file)
    if path is None:
        return {}
    table = run_table(path)
    if not isinstance(table, dict):
        raise SettingError(RUN_TABLE, table, f"use a table [{RUN_TABLE}] with {', '.join(OPTIONS)}", origin=path.name)

    def texts() -> Iterator[tuple[str, _Said]]:
        for name, value in table.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            yield name, _Said(text, f"{RUN_TABLE}.{name}", path.name)

    return _known(texts(), lambda name: f"{RUN_TABLE}.{name}")


def _known(texts: Iterator[tuple[str, _Said]], called: Callable[[str], str]) -> dict[str, _Said]:
    found = dict(texts)
    for name, said in found.items():
        if name not in OPTIONS:
            # Not its value, as of other settings that nobody knows.
            raise SettingError(
                said.name,
                MASK,
                f"`holdfast run` has no option of that name here: {meant(name, OPTIONS, called)}",
                origin=said.where,
            )
    return found
