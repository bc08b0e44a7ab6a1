"""Events of files, judged: without Spark, and however many they are."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from holdfast.errors import SettingError
from holdfast.tools.audit_report.judge.overview import Overview
from holdfast.tools.audit_report.judge.sorting import Sorter
from holdfast.tools.audit_report.judge.unread import NOTHING, RUN_OF_FILE, told
from holdfast.tools.audit_report.judge.whole import judged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from holdfast.tools.audit_report.judge.settings import AuditSettings

_RUN_OF_FILE = re.compile(RUN_OF_FILE)
#: Memory of a line beside its text, in bytes.
_A_LINE = 300


def judged_files(places: Sequence[str], asked: AuditSettings) -> Iterator[tuple[str, dict[str, Any]]]:
    """Tables' names and rows, group by group.

    Args:
        places: files, and folders with files at any depth, but for names that begin with a dot or an underscore.
        asked: what is asked.

    Raises:
        SettingError: nothing is there, or it may not be read.
    """
    runs: dict[tuple[str | None, str | None], tuple[int | None, int]] = {}
    with closing(Sorter()) as events:
        for line, origin in lines_of(places):
            said = told(line, origin)
            last_ms, unreadable = runs.get((said.group, said.run), (None, 0))
            if said.at_ms is None:
                unreadable += 1
            else:
                last_ms = max(last_ms or 0, said.at_ms)
                events.add((said.group, said.run, said.seq, line), len(line) + _A_LINE)
            runs[said.group, said.run] = last_ms, unreadable
        overview = Overview.of((*name, *of_run) for name, of_run in runs.items())
        for group, rows in groupby(events, itemgetter(0)):
            yield from judged(group, (json.loads(line) for *_, line in rows), overview, asked)
        yield from overview.silent()


def lines_of(places: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Lines that are not empty, and the run that their file's name has, or ""; `NOTHING` for a file without any.

    Raises:
        SettingError: as above.
    """
    for path in _files(places):
        run = _RUN_OF_FILE.search(path)
        origin, any_ = "" if run is None else run[1], False
        opened: Callable[..., IO[str]] = gzip.open if path.endswith(".gz") else open
        try:
            with opened(path, "rt", encoding="utf-8", errors="replace") as file:
                for line in file:
                    if line.strip():
                        any_ = True
                        yield line.rstrip("\r\n"), origin
        except (EOFError, gzip.BadGzipFile, zlib.error):
            pass  # it ends where it is cut: holes in the numbers tell what is missing
        except OSError as error:
            raise SettingError("events", path, f"it cannot be read ({error.strerror or error})") from error
        if not any_:
            yield NOTHING, origin


def _files(places: Iterable[str]) -> list[str]:
    """Each of them once, however it is named; links are followed."""
    waiting, seen, found = [Path(each) for each in places], set[Path](), list[str]()
    for path in waiting:
        try:
            real = path.resolve(strict=True)
            if real in seen:
                continue
            seen.add(real)
            if path.is_dir():
                waiting += [each for each in path.iterdir() if not each.name.startswith((".", "_"))]
            else:
                found.append(str(path))
        except FileNotFoundError as error:
            raise SettingError("events", str(path), "no such file or folder") from error
        except (OSError, RuntimeError) as error:  # a circle of links is the latter
            raise SettingError("events", str(path), f"it cannot be read ({error})") from error
    return sorted(found)
