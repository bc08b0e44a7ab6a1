"""`holdfast new`: a folder with an application, its test, and what it takes to run both."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.adapters.cli import options as shared
from holdfast.errors import SettingError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from holdfast.adapters.cli.output import Output

_EXAMPLE = """\
  holdfast new billing
  holdfast new services/billing

The application reads the topic orders of Kafka, as the group with the folder's name. Its test passes at once, without
servers; README.md in the folder says how to run both. Nothing is changed where the folder exists.
"""
#: The word that stands for the project's name in the files of `project/`, and in their names.
_NAME = "billing"
_FILES = (
    "README.md", "billing.py", "test_billing.py", "holdfast.toml", "requirements.txt", "requirements-test.txt",
    "Dockerfile", "compose.yaml", ".dockerignore", ".gitignore",
)  # fmt: skip
#: Modules that the project imports: one of its own of that name would hide them.
_TAKEN = sys.stdlib_module_names | {"holdfast", "redis", "tenacity", "confluent_kafka", "prometheus_client", "pytest"}


def add(commands: shared.Commands) -> None:
    """The command."""
    made = shared.command(commands, "new", "make a project: application, test, image, settings", _EXAMPLE)
    made.add_argument("folder", metavar="FOLDER", help="is made; its name is that of the module and of the group")
    made.set_defaults(run=run, changes=True)


def run(options: argparse.Namespace, output: Output) -> int:
    """Make it. Raises SettingError: it is there, cannot be made, or its name is no module's."""
    folder = Path(options.folder)
    name = folder.name
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise SettingError("FOLDER", options.folder, "use small letters, digits and _: it is the name of a module, too")
    if name in _TAKEN:
        raise SettingError("FOLDER", options.folder, f"choose another name: {name} is a module that Python has")
    try:
        folder.mkdir()
        for file, text in _project(name):
            (folder / file).write_text(text, encoding="utf-8")
    except FileExistsError:
        raise SettingError("FOLDER", options.folder, "it exists, and was left as it is: choose another name") from None
    except OSError as error:
        raise SettingError("FOLDER", options.folder, f"it cannot be made ({error.strerror})") from None
    made = [file for file, _ in _project(name)]
    output.json({"type": "project", "folder": str(folder), "files": made})
    output.say(f"{folder}: {', '.join(made)}")
    output.say()
    output.say("next:")
    output.say_all(
        f"  {each}"
        for each in (
            f"cd {folder}",
            "python -m venv .venv && . .venv/bin/activate",
            "pip install -r requirements-test.txt",
            "python -m pytest",
            f"holdfast run {name}:app --check --offline",
        )
    )
    output.say("README.md there says how to run it.")
    return 0


def _project(name: str) -> Iterator[tuple[str, str]]:
    """Each file of the project, and its text."""
    templates = files("holdfast.adapters.cli") / "project"
    for file in _FILES:
        text = (templates / f"{file.lstrip('.')}.txt").read_text(encoding="utf-8")
        yield file.replace(_NAME, name), text.replace(_NAME, name)
