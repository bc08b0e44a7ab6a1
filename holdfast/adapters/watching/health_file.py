"""A file whose age and contents tell whether apps live, for probes that run a command."""

from __future__ import annotations

import json
import logging
import math
import os
import secrets
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

from holdfast.adapters.watching.outside import Outside
from holdfast.errors import SettingError
from holdfast.plugin.setting_names import check_number
from holdfast.timing import wall_ms

if TYPE_CHECKING:
    from holdfast.plugin.observe.health import Watchable

_log = logging.getLogger("holdfast")


def write_health(
    path: str | Path, *apps: Watchable, every_s: float = 5.0, stall_s: float = 300.0, silent_s: float = 60.0
) -> HealthFile:
    """Write a file every few seconds, in a thread of its own, until `close()` or the process' end.

    It is JSON: `live`, `ready`, `reasons`, `at_ms`. It is replaced in one step, so that nobody reads half of it. When
    an app is not live any more, the file says so, and then is not written again: so its age tells as well.
    `holdfast healthy FILE` judges it.

    Args:
        path: of the file, in a folder that is there.
        apps: one or more.
        every_s: seconds between two writes.
        stall_s: as for `Holdfast.health`.
        silent_s: as for `Holdfast.health`.

    Raises:
        SettingError: no app, a time that cannot work, or the file cannot be written.
    """
    check_number("every_s", every_s, math.ulp(0.0), "use a number of seconds above 0")
    if not apps:
        raise SettingError("apps", (), "give one app or more")
    return HealthFile(Path(path), Outside(apps, stall_s, silent_s), every_s)


class HealthFile:
    """A file that is written. A context: its end closes it."""

    def __init__(self, path: Path, outside: Outside, every_s: float) -> None:
        self._path, self._outside, self._every_s = path, outside, every_s
        self._was_live = True
        self._closed = threading.Event()
        try:
            self._write()
        except OSError as error:
            raise _unwritable(path, error) from error
        self._thread = threading.Thread(target=self._run, name="holdfast-health-file", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write no more; the file stays as it is, and grows old. Any thread."""
        self._closed.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._closed.wait(self._every_s):
            try:
                self._write()
            except OSError as error:
                _log.warning("%s cannot be written: %s", self._path, error)

    def _write(self) -> None:
        found = self._outside.health()
        if found["live"] or self._was_live:
            self._replace(json.dumps({**found, "at_ms": wall_ms()}) + "\n")
        self._was_live = found["live"]

    def _replace(self, text: str) -> None:
        new = _written(self._path, text)
        try:
            new.replace(self._path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise


def check_health_file(path: str | Path) -> None:
    """Whether `write_health` could write there; what is there stays as it is. Raises SettingError."""
    try:
        if Path(path).is_dir():
            raise IsADirectoryError("it is a folder")
        _written(Path(path), "").unlink()
    except OSError as error:
        raise _unwritable(path, error) from error


def _written(path: Path, text: str) -> Path:
    """A new file beside it, that nothing else can have put there: in a folder like /tmp others may have laid a link
    under any name that they can guess."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(file, "w", encoding="utf-8") as writing:
            writing.write(text)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    return new


def _unwritable(path: str | Path, error: OSError) -> SettingError:
    return SettingError(
        "path", str(path), f"cannot be written ({error}): name a file in a folder that this user may write to"
    )
