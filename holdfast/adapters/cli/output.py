"""Output of commands: tables for people, JSON for programs, progress beside both. Nothing else writes.

Names, keys and errors are strangers' text. It is made harmless here, for all commands; what a command shortens, it does
by `shown`.

A command that changes something is finished whether or not somebody still reads: its output ends, its work does not.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
import sys
from typing import TYPE_CHECKING, Literal, TextIO

from holdfast.adapters.cli.layout import table, wrapped
from holdfast.adapters.cli.progress import Progress
from holdfast.adapters.cli.streams import Stream
from holdfast.printable import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Lines of a screen beside its tables and sentences: how many rows are left out, a blank one, the cursor's.
_FRAME = 3
#: Draws a terminal anew.
_CLEAR = "\x1b[H\x1b[J"
#: What a line is about, for the eye: colours on a terminal, and nothing elsewhere. The words say it as well.
Tone = Literal["head", "good", "warning", "bad"]
#: By what a check or a finding calls itself.
TONES: dict[str, Tone] = {"error": "bad", "warning": "warning"}
_COLOURS: dict[Tone, str] = {"head": "1", "good": "32", "warning": "33", "bad": "31"}


class Output:
    """Results go to `out`, everything about how it goes to `err`.

    Args:
        as_json: results are JSON, one value a line; what is for people alone is left out.
        out, err: where they go; None: closed before the process began.
        changes: the command changes something: that nobody reads `out` any more ends nothing. Else it raises
            BrokenPipeError, since there is nothing left to do.
        colours: on a terminal, unless its environment has NO_COLOR, or it is a dumb one. False: nowhere.
    """

    def __init__(
        self,
        *,
        as_json: bool,
        out: TextIO | None,
        err: TextIO | None,
        changes: bool = False,
        colours: bool = True,
    ) -> None:
        self.as_json = as_json
        self._out, self._err = Stream(out, endures=changes), Stream(err, endures=True)
        self._progress: Progress | None = None
        wanted = colours and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._colours = wanted and self._out.isatty()

    @property
    def width(self) -> int | None:
        """Columns of the terminal that shows the results; None: there is none, and lines may have any length."""
        return shutil.get_terminal_size().columns if self._out.isatty() else None

    def say(self, text: str = "", hang: int = 2, tone: Tone | None = None) -> None:
        """A sentence of the result, for people. On a terminal it goes on in lines that are set in by `hang`."""
        self.say_all(wrapped(printable(text), self.width, hang), tone)

    def say_all(self, lines: Iterable[str], tone: Tone | None = None) -> None:
        """Lines of the result, for people. They stay as they are: somebody may want to copy them."""
        if not self.as_json:
            for line in lines:
                self._clear()
                text = printable(line)
                if tone is not None and self._colours:
                    text = f"\x1b[{_COLOURS[tone]}m{text}\x1b[0m"
                self._out.write(text + "\n")

    def draw_anew(self) -> None:
        """Let what follows be written over all that a terminal shows."""
        if not self.as_json:
            self._out.write(_CLEAR)

    def json(self, value: object) -> None:
        """A line of the result, for programs."""
        if self.as_json:
            self._clear()
            text = json.dumps(value, ensure_ascii=False)
            if not text.isprintable():  # JSON leaves some of them as they are: C1, which terminals obey too
                text = "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)
            self._out.write(text + "\n")

    def note(self, text: str) -> None:
        """A line about the work, for people; or several, as of a traceback."""
        self._clear()
        self._err.write(printable_lines(text) + "\n")
        self._err.flush()

    def table(
        self,
        names: Sequence[str],
        rows: Iterable[Sequence[object]],
        most_lines: int | None = None,
        tones: Sequence[Tone | None] = (),
    ) -> int:
        """Columns for people; numbers to the right. A row that a terminal has no room for is folded (`layout`).

        Args:
            names: of the columns.
            rows: with a cell for each column.
            most_lines: as many rows as fit, but one at least; None: all.
            tones: of the rows; none: all are alike.

        Returns: how many rows are shown.
        """
        if self.as_json:
            return 0
        head, *folded = table(names, rows, self.width)
        if most_lines is not None:
            ends = list(itertools.accumulate((len(each) for each in folded), initial=len(head)))
            folded = folded[: max(sum(end <= most_lines for end in ends[1:]), 1)]
        self.say_all(head, "head")
        for lines, tone in itertools.zip_longest(folded, tones[: len(folded)]):
            self.say_all(lines, tone)
        return len(folded)

    def height_of_table(self, names: Sequence[str], rows: Iterable[Sequence[object]]) -> int:
        """The lines that `table` takes for all of its rows."""
        return sum(map(len, table(names, rows, self.width)))

    def room(self, height: int, *sentences: str) -> int:
        """The lines of a screen that are left for tables beside these sentences."""
        return height - sum(len(wrapped(printable(each), self.width, 2)) for each in sentences) - _FRAME

    def agreed(self, question: str) -> bool:
        """Ask whoever runs the command. False too where nobody can be asked: that is said, with the option for it."""
        answer = self.confirm(question, sys.stdin)
        if answer is None:
            self.note("no terminal to ask at: say --yes")
        return bool(answer)

    def confirm(self, question: str, source: TextIO) -> bool | None:
        """Ask a person; None = there is none: `source` is no terminal, or what is asked about cannot be read."""
        self.flush()
        if not source.isatty() or self._out.cut:
            return None
        self._err.write(f"{printable(question)} [y/N] ")
        self._err.flush()
        if self._err.cut:
            return None
        return source.readline().strip().lower() in ("y", "yes")

    def progress(self, what: str, total: int | None = None) -> Progress:
        """For work that may take long."""
        self._progress = Progress(self._err, what, total)
        return self._progress

    def flush(self) -> None:
        """Let a reader have what was said. Raises as all that writes results."""
        self._out.flush()

    def leave(self) -> None:
        """Nobody reads the results any more."""
        self._out.leave()

    def _clear(self) -> None:
        if self._progress is not None:
            self._progress.clear()


class LogLines(logging.Formatter):
    """Lines of a log for a terminal: what holdfast and its clients say is one line, and harmless.

    Args:
        form: as of logging.
        theirs: leave what others log as it is; an application may colour its lines.
    """

    def __init__(self, form: str, *, theirs: bool = False) -> None:
        super().__init__(form)
        self._theirs = theirs

    def format(self, record: logging.LogRecord) -> str:
        """One record, and a traceback below it."""
        text = super().format(record)
        if self._theirs and record.name.partition(".")[0] != "holdfast":
            return text
        first = printable(self.formatMessage(record))
        below = text[len(self.formatMessage(record)) :]
        return first + printable_lines(below)


def shown(text: str, at_most: int = 250) -> str:
    """Text of strangers (keys, error messages) on one line, shortened. No topic's or group's name is longer than the
    default: whoever reads one writes it into the next command."""
    safe = printable(text)
    return safe if len(safe) <= at_most else safe[: at_most - 1] + "…"


def of_bytes(value: bytes | None) -> dict[str, str | None]:
    """Bytes for JSON: as text where they are text, else in hex under another name."""
    if value is None:
        return {"text": None}
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def size(count: int) -> str:
    """Bytes for people."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def count(number: int, thing: str) -> str:
    """Such as "1 member", "2 members"."""
    return f"{number:,} {thing}{'s' * (number != 1)}"


def span(seconds: float) -> str:
    """A time's length for people, to the two largest units."""
    left = int(max(seconds, 0))
    parts: list[str] = []
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        if left >= unit or (name == "s" and not parts):
            parts.append(f"{left // unit}{name}")
            left %= unit
    return " ".join(parts[:2])
