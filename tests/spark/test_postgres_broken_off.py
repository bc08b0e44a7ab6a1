"""A signal's handler raises into a transaction at PostgreSQL, a job's time limit say: it comes out as it is, the
connection is closed, and what was not committed is undone."""

from __future__ import annotations

import contextlib
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast.adapters.spark.values import WriteFailed
from holdfast.adapters.spark.writers.postgres.at import PostgresAt
from tests.harness.lines import Lines
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.harness.servers.postgres import PostgresServer

FOLDERS = (Path(psycopg.__file__).parent, Path(str(sys.modules[PostgresAt.__module__].__file__)).parent)


#: Of 1,000 to 1,800 lines that a call takes, so many are passed over between two that are struck.
STEP = 97


class SoftTimeLimit(Exception):
    """As Celery's."""


class SilentForTooLong(TimeoutError):
    """As many handlers of SIGALRM raise."""


class Refused(Exception):
    """The body's own."""


class Both(Lines):
    """Lines of psycopg and of ours."""

    def _trace(self, frame: Any, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        self._files = next((f"{folder}/" for folder in FOLDERS if name.startswith(f"{folder}/")), "-")
        if "__del__" in (frame.f_code.co_name, frame.f_back.f_code.co_name if frame.f_back else ""):
            return None  # Python swallows what is raised there
        return super()._trace(frame, event, argument)


@contextlib.contextmanager
def handler(raised: BaseException) -> Iterator[None]:
    def handle(*_: object) -> None:
        raise raised

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def connecting(error: BaseException) -> bool:
    """Whether psycopg was about it: such a connection is nobody's yet, and is closed with the frames of its call."""
    return any(frame.f_code.co_name == "connect" for frame, _ in traceback.walk_tb(error.__traceback__))


def writes(at: PostgresAt) -> None:
    with at.connected() as connection:
        connection.execute("INSERT INTO orders SELECT 1")
        with connection.cursor() as cursor, cursor.copy("COPY orders FROM STDIN") as copy:
            copy.write_row((2,))
        assert len(connection.execute("SELECT FROM orders").fetchall()) >= 2


def is_refused_by_the_body(at: PostgresAt) -> None:
    with contextlib.suppress(Refused), at.connected() as connection:
        connection.execute("INSERT INTO orders SELECT 1")
        raise Refused


def is_refused_by_the_server(at: PostgresAt) -> None:
    with contextlib.suppress(WriteFailed), at.connected() as connection:
        connection.execute("INSERT INTO orders SELECT 1")
        connection.execute("SELECT 1 / 0")


@pytest.mark.parametrize("raised", [SoftTimeLimit, SilentForTooLong])
@pytest.mark.parametrize("called", [writes, is_refused_by_the_body, is_refused_by_the_server])
def test_wherever_it_is_broken_off_its_error_comes_out_and_no_connection_is_left(
    postgres: PostgresServer, called: Callable[[PostgresAt], None], raised: type[BaseException]
) -> None:
    url = postgres.database()
    with psycopg.connect(url, autocommit=True, application_name="looks on") as side:
        side.execute("CREATE TABLE orders (id int)")
        at = PostgresAt(url=url, timeout_s=10)

        def left() -> int:
            return len(side.execute("SELECT FROM pg_stat_activity WHERE application_name = 'holdfast'").fetchall())

        called(at)  # what is imported at the first call is imported
        whole = Both(FOLDERS[0])
        with whole.watched():
            called(at)
        ours = {line for file, line in whole.places if not file.startswith(str(FOLDERS[0]))}
        assert len(ours) > 10
        kept: list[BaseException] = []  # else a connection that was forgotten would be closed with its frames
        for line in range(1, whole.taken + 1, STEP):
            side.execute("TRUNCATE orders")
            error = raised()
            with handler(error):
                lines = Both(FOLDERS[0], at=line, deed=lambda: signal.raise_signal(signal.SIGUSR1))
                came: BaseException | None = None
                try:
                    with lines.watched():
                        called(at)
                except BaseException as found:  # noqa: BLE001 - whatever it is
                    came = found
            assert came is (error if lines.taken >= line else None), line
            if connecting(error):
                error.__traceback__ = error.__context__ = None
            kept.append(error)
            until(lambda: left() == 0, f"{line}: a connection is left")
            assert len(side.execute("SELECT FROM orders").fetchall()) in (0, 2), line
