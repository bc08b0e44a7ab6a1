"""argparse with one line of usage: what a command takes besides options, and where all of it is told."""

from __future__ import annotations

import argparse
from typing import NoReturn


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
                words.append({"*": f"[{name} ...]", argparse.PARSER: f"{name} ..."}.get(str(each.nargs), name))
        return " ".join(words)
