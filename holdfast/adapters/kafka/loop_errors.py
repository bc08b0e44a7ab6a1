"""Errors for users' own loops: each is the client's exception as well, since their programs handle that one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.adapters.kafka._client import KafkaError, KafkaException
from holdfast.errors import SettingError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The page that says what differs from the client, and why.
PAGE = "how-to/own-loop.md"


class Refused(SettingError, KafkaException):
    """A setting or a call that holdfast or the client refuses; `code()` is _INVALID_ARG, as with the client."""

    page = PAGE

    def __init__(self, error: SettingError) -> None:
        SettingError.__init__(self, error.field, error.value, error.remedy, origin=error.origin)
        self._said = str(error)
        self.args = (KafkaError(KafkaError._INVALID_ARG, self._said),)  # noqa: SLF001 - librdkafka's name

    def __str__(self) -> str:
        return self._said


@contextmanager
def as_the_clients() -> Iterator[None]:
    """Around calls: raises our errors as the client's exception. It has ours as its cause, or is of both types."""
    try:
        yield
    except Refused:
        raise
    except SettingError as error:
        raise Refused(error) from error.__cause__
    except SourceError as error:
        raise _as_kafka_exception(error) from error


def as_client(code: int, why: str) -> KafkaException:
    """The client's exception, in a case in which the client raises it too."""
    return KafkaException(KafkaError(code, why))


def differs(code: int, why: str) -> KafkaException:
    """The client's exception, in a case in which the client raises none: the promise forbids the call."""
    error = as_client(code, why)
    error.add_note(f"docs: docs/{PAGE}")
    return error


def _as_kafka_exception(error: SourceError) -> KafkaException:
    """The engine's error as the exception of the client that loops expect."""
    kafka = getattr(error.__cause__, "args", (None,))[0]
    if not isinstance(kafka, KafkaError):
        kafka = KafkaError(KafkaError._FAIL, str(error))  # noqa: SLF001 - librdkafka's name
    return KafkaException(kafka)
