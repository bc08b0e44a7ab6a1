"""The command `holdfast`. The only adapter that may import its siblings; nothing imports it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """See `entry.main`. Ctrl-C ends it in one line from the beginning: what it imports takes a while."""
    try:
        from holdfast.adapters.cli import entry  # noqa: PLC0415 - see above

        return entry.main(arguments)
    except KeyboardInterrupt:
        print("holdfast: interrupted", file=sys.stderr)  # noqa: T201 - there is no output yet
        return 130  # INTERRUPTED: exit_codes imports others, too
