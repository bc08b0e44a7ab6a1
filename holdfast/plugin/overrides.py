"""Overrides: settings from the environment and from a TOML file, which replace those of the code.

Each value is checked as in code. Errors have the name that the value has in the environment or the file. The caller
passes the environment.
"""

from __future__ import annotations

import re
import tomllib
import types
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from holdfast.errors import SettingError
from holdfast.plugin.secret_names import MASK
from holdfast.plugin.setting_names import meant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

T = TypeVar("T")

PREFIX = "HOLDFAST_"
ENVIRONMENT = "environment"
PROJECT_FILE = "pyproject.toml"
#: Variables that `holdfast run` sets for its processes; they are no settings.
PROCESS, LIFELINE = "HOLDFAST_PROCESS", "HOLDFAST_LIFELINE"
#: Where the command line looks for servers and a group that its options do not name; they are no settings of an app.
TOOLS = {
    "bootstrap": "HOLDFAST_BOOTSTRAP",
    "namesrv": "HOLDFAST_NAMESRV",
    "redis": "HOLDFAST_REDIS",
    "group": "HOLDFAST_GROUP",
}
_NO_SETTINGS = frozenset({PROCESS, LIFELINE, *TOOLS.values()})
#: The prefix and the table of the options of `holdfast run`; they are no settings of an app.
RUN_PREFIX, RUN_TABLE = "HOLDFAST_RUN_", "run"
#: Stands for None, which neither an environment nor TOML has.
NONE = "none"
# Kubernetes sets such variables in every pod for each service of the namespace (enableServiceLinks). Those of a service
# named holdfast, or holdfast-something, begin with our prefix.
_LINK_VALUE = re.compile(r"(tcp|udp|sctp)://.*")
_SERVICE_LINK = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One value from the environment or from a file."""

    #: "environment", or the file's name.
    where: str
    #: Its name there.
    name: str
    #: Its value there, before conversion.
    given: object
    value: object

    def error(self, remedy: str) -> SettingError:
        """The error for this value, with its name there."""
        return SettingError(self.name, self.given, remedy, origin=self.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Settings from the environment, from a file, or from both."""

    #: Field -> its override; nested fields with dots: "workers", "ramp", "ramp.headroom".
    values: Mapping[str, Override] = field(default_factory=dict)

    def under(self, later: Overrides) -> Overrides:
        """Merge these with `later`, which wins."""

        def stays(path: str) -> bool:
            above = path.rpartition(".")[0]
            return above not in later.values and not any(each.startswith(f"{path}.") for each in later.values)

        mine = {path: given for path, given in self.values.items() if stays(path)}
        return Overrides(values={**mine, **later.values})

    def over(self, base: T) -> T:
        """Return `base` with these values. Raises SettingError, with the names of the environment or the file."""
        whole: dict[str, object] = {}
        nested: dict[str, dict[str, object]] = {}
        for path, given in self.values.items():
            name, _, below = path.partition(".")
            if below:
                nested.setdefault(name, {})[below] = given.value
            else:
                whole[name] = given.value
        for name, changes in nested.items():
            before = getattr(base, name)
            whole[name] = self._made(_inner(type(base), name)() if before is None else before, changes)
        made: T = self._made(base, whole)
        return made

    def named(self, error: SettingError) -> SettingError:
        """The error with the setting's name in the environment or the file, if its value comes from there."""
        given = self.values.get(error.field)
        if given is not None:
            return given.error(error.remedy)
        if not self.values or error.origin:
            return error
        # Two settings contradict each other, and the error names the one that comes from the code.
        others = ", ".join(f"{each.name} ({each.where})" for each in self.values.values())
        return SettingError(
            error.field, error.value, f"{error.remedy}; in force are {others}", origin="code or default"
        )

    def _made(self, base: Any, changes: Mapping[str, object]) -> Any:  # noqa: ANN401 - as given
        try:
            return replace(base, **changes)
        except SettingError as error:
            raise self.named(error) from None


def of_environment(settings: type[object], environment: Mapping[str, str]) -> Overrides:
    """The settings in an environment: the variables HOLDFAST_...

    Raises:
        SettingError: an unknown name, or a text that cannot be converted.
    """
    paths = {PREFIX + path.replace(".", "_").upper(): (path, hint) for path, hint in _paths(settings)}
    found = {}
    for name, text in sorted(environment.items()):
        if not name.startswith(PREFIX) or name in _NO_SETTINGS or _SERVICE_LINK.fullmatch(name):
            continue
        if name.startswith(RUN_PREFIX):
            continue
        if name not in paths:
            raise _unknown(name, list(paths), ENVIRONMENT)
        path, hint = paths[name]
        found[path] = Override(where=ENVIRONMENT, name=name, given=text, value=_of_text(name, text, hint))
    return _of_one_place(found)


def of_file(settings: type[object], path: str | Path) -> Overrides:
    """The settings in a TOML file; in a pyproject.toml, those of its table [tool.holdfast].

    Raises:
        SettingError: as `of_table`, or the file cannot be read.
    """
    file = Path(path)
    return of_table(settings, {name: value for name, value in _content(file).items() if name != RUN_TABLE}, file.name)


def run_table(path: str | Path) -> object:
    """The table [run] of a TOML file, with the options of `holdfast run`; {} if there is none. Raises SettingError, as
    `of_file`."""
    return _content(Path(path)).get(RUN_TABLE, {})


def is_service_link(name: str, value: str) -> bool:
    """Whether a variable with the prefix of `holdfast run` comes from Kubernetes, for a service holdfast-run."""
    linked = _SERVICE_LINK.fullmatch(name) is not None
    return linked and (name != f"{RUN_PREFIX}PORT" or _LINK_VALUE.fullmatch(value) is not None)


def _content(file: Path) -> dict[str, Any]:
    """The settings in a file. Raises SettingError: it cannot be read."""
    try:
        content: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError("file", str(file), f"it cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise SettingError("file", str(file), "it is no UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingError("file", str(file), f"it is no TOML: {error}") from None
    if file.name == PROJECT_FILE:
        tools = content.get("tool", {})
        content = tools.get("holdfast", {}) if isinstance(tools, dict) else {}
    if not isinstance(content, dict):
        raise SettingError("tool.holdfast", content, "make it a table, [tool.holdfast]", origin=file.name)
    return content


def of_table(settings: type[object], table: Mapping[str, object], where: str) -> Overrides:
    """The settings of a TOML table.

    Args:
        settings: the class of the settings.
        table: the table's content.
        where: the file, for errors.

    Raises:
        SettingError: an unknown name, or a value that cannot work.
    """
    paths = dict(_paths(settings))
    found = {}
    for name, value in _flat(table, paths):
        if name not in paths:
            raise _unknown(name, list(paths), where)
        converted = None if value == NONE and _may_be_none(paths[name]) else value
        if converted is not None and _inner_of(paths[name]) is not None:
            raise SettingError(name, value, f'use a table of its settings, or "{NONE}"', origin=where)
        found[name] = Override(where=where, name=name, given=value, value=converted)
    return _of_one_place(found)


def _of_one_place(found: Mapping[str, Override]) -> Overrides:
    for path, given in found.items():
        if (above := found.get(path.rpartition(".")[0])) is not None:
            raise above.error(f"{given.name} contradicts it: leave one of the two out")
    return Overrides(values=found)


def _unknown(name: str, known: list[str], where: str) -> SettingError:
    # Without the value: behind a misspelled or invented name, it may be a password.
    return SettingError(name, MASK, f"there is no setting of that name: {meant(name, known)}", origin=where)


def _paths(settings: type[object], above: str = "") -> Iterator[tuple[str, Any]]:
    hints = get_type_hints(settings)
    for each in fields(settings):  # type: ignore[arg-type]  # it is a dataclass
        yield above + each.name, hints[each.name]
        if (inner := _inner_of(hints[each.name])) is not None:
            yield from _paths(inner, f"{above}{each.name}.")


def _inner(settings: type[object], name: str) -> Any:  # noqa: ANN401 - a class of settings
    return _inner_of(get_type_hints(settings)[name])


def _inner_of(hint: object) -> type[object] | None:
    """The class of nested settings in a hint: Ramp, for `Ramp | None`."""
    return next((each for each in _choices(hint) if isinstance(each, type) and is_dataclass(each)), None)


def _may_be_none(hint: object) -> bool:
    return types.NoneType in _choices(hint)


def _choices(hint: object) -> tuple[object, ...]:
    return get_args(hint) if get_origin(hint) in (types.UnionType, Union) else (hint,)


def _of_text(name: str, text: str, hint: object) -> object:
    """Convert a text to a value. The settings themselves refuse unknown words and numbers out of range.

    Raises SettingError.
    """
    word, choices = text.strip(), _choices(hint)
    if types.NoneType in choices and word.lower() == NONE:
        return None
    if _inner_of(hint) is not None:
        raise SettingError(name, text, f"use {NONE}, or {name}_... for one of its settings", origin=ENVIRONMENT)
    if get_origin(hint) is Literal:
        return word
    number = int if int in choices else float
    try:
        return number(word)
    except ValueError:
        what = "a whole number" if number is int else "a number"
        remedy = f"use {what}{f', or {NONE}' if types.NoneType in choices else ''}"
        raise SettingError(name, text, remedy, origin=ENVIRONMENT) from None


def _flat(table: Mapping[str, object], paths: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        path = above + name
        if isinstance(value, dict) and _inner_of(paths.get(path)) is not None:
            yield from _flat(value, paths, f"{path}.")
        else:
            yield path, value
