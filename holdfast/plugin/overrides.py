"""Overrides: settings from a program's environment and from a TOML file, laid over those that its code has.

Each value is checked as in code, and told by the name that it has in its place. Who asks brings the environment.
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
#: What `holdfast run` tells its processes, and no setting.
PROCESS, LIFELINE = "HOLDFAST_PROCESS", "HOLDFAST_LIFELINE"
#: Where `holdfast run` has its own options; they are no settings of an app.
RUN_PREFIX, RUN_TABLE = "HOLDFAST_RUN_", "run"
#: In the place of None, which neither an environment nor TOML has.
NONE = "none"
# Kubernetes gives every pod such variables for each service of its namespace (enableServiceLinks): of one that is
# called holdfast, or holdfast-something, they begin as ours.
_LINK_VALUE = re.compile(r"(tcp|udp|sctp)://.*")
_SERVICE_LINK = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One value of a place."""

    #: For people: "environment", or the file's name.
    where: str
    #: As it is called there, and as it stands there.
    name: str
    said: object
    value: object

    def error(self, remedy: str) -> SettingError:
        """Tell that it cannot work, by the name that it has there."""
        return SettingError(self.name, self.said, remedy, origin=self.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """The settings of one place, or of several."""

    #: By their fields, with dots where they are nested: "workers", "ramp", "ramp.headroom".
    values: Mapping[str, Override] = field(default_factory=dict)

    def under(self, later: Overrides) -> Overrides:
        """Merge these with others, which win."""

        def stays(path: str) -> bool:
            above = path.rpartition(".")[0]
            return above not in later.values and not any(each.startswith(f"{path}.") for each in later.values)

        mine = {path: given for path, given in self.values.items() if stays(path)}
        return Overrides(values={**mine, **later.values})

    def over(self, base: T) -> T:
        """Change settings to these. Raises SettingError, by the names that they have there."""
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
        """Name the setting of an error as it is called there, if its value is one of these."""
        given = self.values.get(error.field)
        if given is not None:
            return given.error(error.remedy)
        if not self.values or error.origin:
            return error
        # Two contradict each other, and the one that is named is the program's own.
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
    """The settings that stand in an environment as HOLDFAST_..., a text each.

    Raises:
        SettingError: a name that is no setting's, or a text that cannot be a value of it.
    """
    paths = {PREFIX + path.replace(".", "_").upper(): (path, hint) for path, hint in _paths(settings)}
    found = {}
    for name, text in sorted(environment.items()):
        if not name.startswith(PREFIX) or name in (PROCESS, LIFELINE) or _SERVICE_LINK.fullmatch(name):
            continue
        if name.startswith(RUN_PREFIX):
            continue
        if name not in paths:
            raise _unknown(name, list(paths), ENVIRONMENT)
        path, hint = paths[name]
        found[path] = Override(where=ENVIRONMENT, name=name, said=text, value=_of_text(name, text, hint))
    return _of_one_place(found)


def of_file(settings: type[object], path: str | Path) -> Overrides:
    """The settings of a TOML file; of a pyproject.toml those of its table [tool.holdfast].

    Raises:
        SettingError: as `of_table`, or the file cannot be read.
    """
    file = Path(path)
    return of_table(settings, {name: value for name, value in _content(file).items() if name != RUN_TABLE}, file.name)


def run_table(path: str | Path) -> object:
    """Read what a TOML file says of `holdfast run` itself: its table [run], {} if it has none. Raises SettingError, as
    `of_file`."""
    return _content(Path(path)).get(RUN_TABLE, {})


def is_service_link(name: str, value: str) -> bool:
    """Whether a variable that begins as one of `holdfast run` is one of Kubernetes', for a service holdfast-run."""
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
        settings: the class that has them.
        table: its content.
        where: the file, for errors.

    Raises:
        SettingError: a name that is no setting's, or a value that is not one's.
    """
    paths = dict(_paths(settings))
    found = {}
    for name, said in _flat(table, paths):
        if name not in paths:
            raise _unknown(name, list(paths), where)
        value = None if said == NONE and _may_be_none(paths[name]) else said
        if value is not None and _inner_of(paths[name]) is not None:
            raise SettingError(name, said, f'use a table of its settings, or "{NONE}"', origin=where)
        found[name] = Override(where=where, name=name, said=said, value=value)
    return _of_one_place(found)


def _of_one_place(found: Mapping[str, Override]) -> Overrides:
    for path, given in found.items():
        if (above := found.get(path.rpartition(".")[0])) is not None:
            raise above.error(f"{given.name} contradicts it: leave one of the two out")
    return Overrides(values=found)


def _unknown(name: str, known: list[str], where: str) -> SettingError:
    # Not its value: who misspells a name, or thinks that there is one, may have written a password.
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
    """Of `Ramp | None`: Ramp."""
    return next((each for each in _choices(hint) if isinstance(each, type) and is_dataclass(each)), None)


def _may_be_none(hint: object) -> bool:
    return types.NoneType in _choices(hint)


def _choices(hint: object) -> tuple[object, ...]:
    return get_args(hint) if get_origin(hint) in (types.UnionType, Union) else (hint,)


def _of_text(name: str, text: str, hint: object) -> object:
    """The value that a text stands for. What only looks wrong (an unknown word, a number below 0) the settings refuse.

    Raises SettingError.
    """
    said, choices = text.strip(), _choices(hint)
    if types.NoneType in choices and said.lower() == NONE:
        return None
    if _inner_of(hint) is not None:
        raise SettingError(name, text, f"use {NONE}, or {name}_... for one of its settings", origin=ENVIRONMENT)
    if get_origin(hint) is Literal:
        return said
    number = int if int in choices else float
    try:
        return number(said)
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
