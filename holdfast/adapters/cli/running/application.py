"""From `module:attribute` to the app: imports the user's module as a program of its own would."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast.adapters.cli.exit_codes import ImportFailed
from holdfast.errors import HoldfastError, SettingError
from holdfast.plugin.app import Holdfast

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType, TracebackType

#: The command's argument, in its errors.
NAME = "MODULE:APP"
_EXAMPLE = "write it as module:attribute, such as billing.main:app"


def load(target: str, *, factory: bool, folder: str) -> Holdfast:
    """The app.

    Args:
        target: `module:attribute`; the attribute may have dots.
        factory: the attribute is a function without parameters that returns the app.
        folder: where modules are looked for first, as Python does for a script.

    Raises:
        SettingError: no such module or attribute, or it is no app.
        ImportFailed: the user's code raised; HoldfastError, as it stands, where holdfast refused something in it.
    """
    module_name, colon, path = target.partition(":")
    if not colon or not path or not all(each.isidentifier() for each in (*module_name.split("."), *path.split("."))):
        raise SettingError(NAME, target, _path_remedy(module_name) or _EXAMPLE)
    with _not_run(target):
        module = _imported(module_name, target, folder)
        found = _attribute(module, path, target)
        if factory:
            found = _called(found, target)
    return _checked(found, target, factory=factory)


@contextmanager
def _not_run(target: str) -> Iterator[None]:
    """Refuse `app.run()` meanwhile: where a module ends with it, as a script does, the import would never end."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise SettingError(
            NAME, target, "its module calls run() while it is imported: put that under `if __name__ == '__main__':`"
        )

    run = Holdfast.run
    setattr(Holdfast, "run", refuse)  # noqa: B010 - an assignment is no method to mypy
    try:
        yield
    finally:
        setattr(Holdfast, "run", run)  # noqa: B010 - as above


def _path_remedy(said: str) -> str:
    """Tell which module is meant where a file's path is given; "" = it is no path."""
    if not said.endswith(".py") and "/" not in said:
        return ""
    path = Path(said).with_suffix("")
    if path.is_absolute():
        return f"this is a file: say its module, such as {path.name}:app --app-dir {path.parent}"
    return f"this is a file: say its module, such as {'.'.join(each for each in path.parts if each != '.')}:app"


def _imported(name: str, target: str, folder: str) -> ModuleType:
    place = str(Path(folder).resolve())
    if place not in sys.path:
        sys.path.insert(0, place)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only the module that was asked for, or a package that it is in: what it imports itself is its own matter.
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise SettingError(
                NAME,
                target,
                f"there is no module {error.name}, looked for in {place} first: check the name, or --app-dir",
            ) from None
        raise _failed(error, f"importing {name}") from error
    except HoldfastError:
        raise
    except Exception as error:
        raise _failed(error, f"importing {name}") from error


def _attribute(module: ModuleType, path: str, target: str) -> object:
    found: Any = module
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            owner = module.__name__ if found is module else f"{type(found).__name__} {module.__name__}:{path}"
            raise SettingError(NAME, target, f"{owner} has no {name}: {_nearest(found, name)}") from None
    return found


def _nearest(owner: object, name: str) -> str:
    apps = (
        [each for each, value in vars(owner).items() if isinstance(value, Holdfast)] if inspect.ismodule(owner) else []
    )
    near = apps or difflib.get_close_matches(name, dir(owner), 1)
    return f"did you mean {' or '.join(near)}?" if near else "check the name after the colon"


def _called(make: object, target: str) -> object:
    if not callable(make):
        raise SettingError(
            NAME, target, f"--factory wants a function, and this is a {type(make).__name__}: leave it out"
        )
    try:
        inspect.signature(make).bind()
    except TypeError:
        raise SettingError(
            NAME, target, "the factory is called without arguments: give its parameters defaults"
        ) from None
    except ValueError:  # some functions in C do not tell their parameters
        pass
    try:
        return make()
    except HoldfastError:
        raise
    except Exception as error:
        raise _failed(error, f"calling {target}") from error


def _checked(found: object, target: str, *, factory: bool) -> Holdfast:
    if isinstance(found, Holdfast):
        return found
    if inspect.iscoroutine(found):
        found.close()
        raise SettingError(NAME, target, "the factory is an async def: let a plain function return the app")
    if not factory and callable(found):
        raise SettingError(NAME, target, "this is a function or class, no app: say --factory, if calling it makes one")
    what = f"{'the factory returned' if factory else 'this is'} a {type(found).__name__}"
    raise SettingError(NAME, target, f"{what}, no Holdfast: name the app itself")


def _failed(error: Exception, doing: str) -> ImportFailed:
    """The error with the user's lines of its traceback: neither ours nor those of Python's import."""
    where: TracebackType | None = error.__traceback__
    while where is not None and _not_theirs(where.tb_frame.f_code.co_filename):
        where = where.tb_next
    lines = "".join(traceback.format_exception(type(error), error, where)).rstrip()
    return ImportFailed(f"{doing} failed ({type(error).__name__}); mend what its last lines say:\n{lines}")


def _not_theirs(file: str) -> bool:
    return file == __file__ or file.startswith("<frozen importlib") or file == importlib.__file__
