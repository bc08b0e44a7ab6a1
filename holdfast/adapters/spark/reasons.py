"""What holdfast has said, out of what Spark has made of it."""

from __future__ import annotations

import re

from holdfast.errors import HoldfastError

_SAID = re.compile(r"^holdfast(?:\.\w+)+: (.+)$", re.MULTILINE)  # as Python ends a trace


def reason(error: BaseException | None) -> str | None:
    """Our sentence in the `StreamingQueryException` of a query that the sink has ended: `reason(query.exception())`.

    Spark has it as text alone, in the middle of a trace and a plan. For people and their logs: nothing should be
    decided by it. None: holdfast said nothing.
    """
    if isinstance(error, HoldfastError):
        return str(error)
    said = _SAID.findall(str(error)) if error is not None else []
    return said[-1] if said else None
