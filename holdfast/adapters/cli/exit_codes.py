"""Exit codes, and which error has which."""

from __future__ import annotations

from holdfast.errors import ClientUnusable, HoldfastError, MissingExtraError, SettingError

REFUSED, USAGE, NO_ANSWER, INTERRUPTED = 1, 2, 3, 130


class ImportFailed(HoldfastError):
    """The user's module, or the factory in it, raised. The message has the traceback of the user's own lines."""


def code_of(error: HoldfastError) -> int:
    """The exit code of a command that this error has ended."""
    if isinstance(error, SettingError | MissingExtraError | ClientUnusable | ImportFailed):
        return USAGE
    return NO_ANSWER if error.retriable else REFUSED
