"""Header names that are not UTF-8, as a producer in another language than Python may write them.

- What the binding does: it decodes names when headers are first asked for. At a name that it cannot decode it raises
  SystemError and keeps a tuple without that name. The process crashes at the next look at that tuple. The name is lost.
- Seen with confluent-kafka 2.13.2 to 2.16.1. No issue of the binding was found.
- What holdfast does: such a name becomes U+FFFD, in the record and in the message. Its value is kept.
- It can go when the binding passes such names on, or raises an error that leaves the message whole.
- Test: tests/contracts/kafka/test_header_names.py.
"""

from __future__ import annotations

import gc
from operator import methodcaller
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.adapters.kafka._client import Message

    Headers = Sequence[tuple[str, bytes | None]]

#: Stands for a name that cannot be decoded.
UNKNOWN = "\ufffd"
#: `message.headers()`, called from C. Python's interpreter specialises a call that runs often, and then no longer
#: checks whether it has failed: the error would come out of some later call.
ask: Callable[[Message], Headers | None] = methodcaller("headers")


def headers_of(message: Message) -> Headers:
    """All headers of a message, which must not have been asked for before."""
    try:
        return ask(message) or ()
    except SystemError:
        return replace_unknown_names(message)


def replace_unknown_names(message: Message) -> Headers:
    """Give headers without a name the name `UNKNOWN`, in the message too, after `ask` has raised SystemError."""
    kept: Any = message.headers()
    # The cyclic collector tells what a tuple really holds: a name and a value, or the value alone.
    headers = [each if len(gc.get_referents(each)) == 2 else (UNKNOWN, each[1]) for each in kept]
    message.set_headers(headers)
    return headers
