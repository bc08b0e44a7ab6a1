"""The error tree.

    HoldfastError
    ├── SettingError            a setting that cannot work; raised where it is written
    ├── MissingExtraError       an optional dependency is not installed
    ├── StateError              an illegal move of a one-way state: a defect in holdfast
    ├── StoreError
    │   ├── StoreUnavailable    no answer; says nothing about what was asked (retriable)
    │   └── StoreRefused        the server answers, and the answer is no (password, version, eviction)
    ├── SourceError
    │   ├── SourceUnavailable   the broker does not answer now (retriable)
    │   ├── SourceFatal         this client is finished; a new one may work (retriable)
    │   ├── NotAuthorised       the broker refuses these credentials
    │   └── UnknownTopic        a topic that is subscribed to does not exist
    ├── DeadLetterError         a dead letter was not acknowledged (retriable)
    │   └── DeadLetterRefused   its target will never take it: too large, missing, closed to us
    └── HandlerError
        ├── Unretriable         raised *by* handlers: trying again cannot cure this record
        │   └── KeyMissing      a record has no business key, and the setting says that is an error
        ├── BatchFailed         raised *by* batch handlers: these records failed, the others are done
        └── HandlerFailed       a record failed for good and there is no dead letter: the app stops

Every message says the cause and the remedy. Nothing in holdfast decides by an error's text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping


class HoldfastError(Exception):
    """The base of all errors that holdfast raises."""

    #: Whether asking again may help without anybody changing anything.
    retriable: ClassVar[bool] = False


class SettingError(HoldfastError, ValueError):
    """A setting that cannot work: names the field, its value and the remedy. Raised at construction."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        super().__init__(f"{field}={value!r}: {remedy}")
        self.field, self.value, self.remedy = field, value, remedy


class MissingExtraError(HoldfastError, ImportError):
    """An optional dependency is not installed; the message names the extra to install."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed: pip install 'holdfast[{extra}]'")


class StateError(HoldfastError):
    """An illegal move of a one-way state. Always a defect in holdfast: please report it."""


class StoreError(HoldfastError):
    """Something is wrong with the claim store."""


class StoreUnavailable(StoreError):
    """The store gave no answer. That is no verdict: not claimed, not done, not owned, not let go."""

    retriable = True


class StoreRefused(StoreError):
    """The store answers and refuses: credentials, a version that is too old, an eviction policy that forgets."""


class SourceError(HoldfastError):
    """Something is wrong between this process and the broker."""


class SourceUnavailable(SourceError):
    """The broker does not answer now."""

    retriable = True


class SourceFatal(SourceError):
    """The client has ended its life (fenced instance id, fatal protocol error); a rebuilt one may work."""

    retriable = True


class NotAuthorised(SourceError):
    """The broker refuses the credentials or the access to a topic or group."""


class UnknownTopic(SourceError):
    """A topic that is subscribed to by name does not exist."""


class DeadLetterError(HoldfastError):
    """A dead letter was not acknowledged by its broker; the record stays unsettled."""

    retriable = True


class DeadLetterRefused(DeadLetterError):
    """The target refuses the letter and always will: it is too large, or the topic is missing or closed to us.

    The record stays unsettled and the app stops: going on would skip it, trying again would never end.
    """

    retriable = False


class HandlerError(HoldfastError):
    """Something about a record's handling."""


class Unretriable(HandlerError):
    """Raise it in a handler when trying again cannot cure the record (it cannot be decoded, say).

    The record goes to the dead letter at once or, without one, stops the app.
    """


class KeyMissing(Unretriable):
    """A record has no business key where the handler asks for one."""


class BatchFailed(HandlerError):
    """Raise it in a batch handler to fail some records; all others of the batch count as done.

    Args:
        failures: position of the record in the list that the handler got -> what went wrong.
    """

    def __init__(self, failures: Mapping[int, Exception]) -> None:
        super().__init__(f"{len(failures)} records of the batch failed")
        self.failures = dict(failures)


class HandlerFailed(HandlerError):
    """A record failed for good and has no dead letter. `app.run()` drains, commits below it, leaves and raises this."""
