"""argparse with one line of usage: what a command takes besides options, and where all of it is told."""

from __future__ import annotations

import argparse
import re
import textwrap
from typing import NoReturn

#: A line of a text that is longer goes on in the next one.
_FULL = 90
#: Stands for a space at which no line ends.
_KEPT = "\N{NO-BREAK SPACE}"
#: The space between an option and its value.
_VALUE = re.compile(r"(--[\w-]+) (?=[^-\s])")


class Help(argparse.RawDescriptionHelpFormatter):
    """Texts at the terminal's width. Indented lines are examples: a command goes on in the next line by a backslash."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        paragraph: list[str] = []
        for line in [*text.splitlines(), ""]:
            begins = line.startswith("exit code") or line[:1] in ("", " ")
            if paragraph and (begins or len(paragraph[-1]) <= _FULL):
                lines += textwrap.wrap(" ".join(paragraph), width)
                paragraph.clear()
            if line[:1] in ("", " "):
                lines += _example(line, width)
            else:
                paragraph.append(line)
        return "\n".join(indent + line for line in lines).rstrip()


def _example(line: str, width: int) -> list[str]:
    """A command in several lines, if it is too long for one. What the shell would take otherwise stays whole."""
    if len(line) <= width or not line.lstrip().startswith("holdfast ") or "#" in line:
        return [line]
    goes_on = line.endswith("\\")
    whole = _VALUE.sub(rf"\1{_KEPT}", line.removesuffix("\\"))
    parts = textwrap.wrap(whole, width - 2, subsequent_indent=" " * 6, break_long_words=False, break_on_hyphens=False)
    parts = [each.replace(_KEPT, " ") for each in parts]
    return [*(f"{each} \\" for each in parts[:-1]), parts[-1] + " \\" * goes_on]


class Parser(argparse.ArgumentParser):
    """A parser whose errors say what is wrong. Its subcommands' parsers are of this kind too."""

    def format_usage(self) -> str:
        """One line, however many options there are."""
        return f"usage: {self._one_line()}\n"

    def format_help(self) -> str:
        """All options, under one line of usage."""
        self.usage = self._one_line()
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Say what is wrong; then where to look. Exit code 2."""
        self.exit(2, f"{self.prog}: {message}\n{self.format_usage()}{self.prog} --help shows all options\n")

    def _one_line(self) -> str:
        words = [self.prog.replace("%", "%%")]
        options = [each for each in self._actions if each.option_strings]
        words += [f"{each.option_strings[-1]} {each.metavar or each.dest.upper()}" for each in options if each.required]
        words.append("[options]")
        for each in self._actions:
            if not each.option_strings:
                name = str(each.metavar or each.dest)
                words.append(
                    {"*": f"[{name} ...]", "+": f"{name} ...", argparse.PARSER: f"{name} ..."}.get(
                        str(each.nargs), name
                    )
                )
        return " ".join(words)
