"""`holdfast completion`: commands and options, completed by a shell. argcomplete (an extra) does the work."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from holdfast.adapters.cli import options as shared
from holdfast.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.adapters.cli.output import Output

_EXAMPLE = """\
  eval "$(holdfast completion bash)"
  holdfast completion zsh > ~/.zfunc/_holdfast
  holdfast completion fish > ~/.config/fish/completions/holdfast.fish

The first line is for ~/.bashrc. It takes the extra: pip install 'holdfast-mq[completion]'.
"""
#: What a shell sets when it asks.
_ASKS = "_ARGCOMPLETE"
#: Values that are names of files, by how the help calls them.
_FILES = ("FILE", "FILE.svg", "FOLDER", "DIR")


def add(commands: shared.Commands) -> None:
    """The command."""
    made = shared.command(commands, "completion", "let a shell complete commands and options", _EXAMPLE)
    made.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish")
    made.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """Print what the shell has to read. Raises MissingExtraError."""
    try:
        from argcomplete.shell_integration import shellcode  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError("argcomplete", "completion") from error
    script = shellcode(["holdfast"], use_defaults=False, shell=options.shell)
    output.json({"type": "completion", "shell": options.shell, "script": script})
    output.say_all(script.splitlines())
    return 0


def complete(whole: argparse.ArgumentParser) -> None:
    """Answer a shell that asks, and end the process; nothing, if none does."""
    if _ASKS not in os.environ:
        return
    import argcomplete  # noqa: PLC0415 - whoever asks has it
    from argcomplete.completers import FilesCompleter, SuppressCompleter  # noqa: PLC0415 - as above

    for each in _actions(whole):
        if each.metavar in _FILES:
            each.completer = FilesCompleter()  # type: ignore[attr-defined]  # as argcomplete has it
    argcomplete.autocomplete(whole, default_completer=SuppressCompleter())


def _actions(one: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for each in one._actions:  # noqa: SLF001 - argparse has no public name for it
        yield each
        if isinstance(each, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for below in each.choices.values():
                yield from _actions(below)
