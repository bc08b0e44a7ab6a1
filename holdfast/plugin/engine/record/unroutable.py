"""Unroutable: dead-letters records of the broker's retry topic that do not name the topic they came from.

Somebody put them there by hand. No handler can take them, and neither a retry nor a change to the app would help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from holdfast.errors import Unretriable
from holdfast.plugin.handlers import Handler
from holdfast.plugin.retrying.retry import Retry

if TYPE_CHECKING:
    from holdfast.records import Record


def handler_of_unroutable(retry_topic: str, letters: str) -> Handler:
    """Fails each of them for good, into that dead letter topic."""
    return Handler(
        name="holdfast.unroutable", call=_refuse, topics=(retry_topic,), retry=Retry(attempts=1), dead_letter=letters
    )


def _refuse(record: Record) -> NoReturn:
    raise Unretriable(
        f"records of {record.topic} name their topic of origin, and this one does not: no handler takes it"
    )
