"""Headers whose names are no UTF-8, as any producer but Python's may write them.

The binding (2.13.2 to 2.16.1) decodes names when headers are first asked for. Of one that it cannot decode it raises
SystemError, and keeps a tuple without that name, at which the process crashes whoever looks. Which name it was, is
lost.
"""

from __future__ import annotations

import gc
from operator import methodcaller
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.adapters.kafka._client import Message

    Headers = Sequence[tuple[str, bytes | None]]

#: Stands for such a name.
UNKNOWN = "\ufffd"
#: `message.headers()`. Where Python's own code has called it often, it does not look any more whether the call has
#: failed, and the error comes out of some later call.
ask: Callable[[Message], Headers | None] = methodcaller("headers")


def headers_of(message: Message) -> Headers:
    """All of them; for those who are the first to ask."""
    try:
        return ask(message) or ()
    except SystemError:
        return mended(message)


def mended(message: Message) -> Headers:
    """Call unknown names so, in the message too, after `ask` has raised SystemError."""
    kept: Any = message.headers()
    # The collector of cycles counts what a tuple really has: a name and a value, or the value alone.
    headers = [each if len(gc.get_referents(each)) == 2 else (UNKNOWN, each[1]) for each in kept]
    message.set_headers(headers)
    return headers
