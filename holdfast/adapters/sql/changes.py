"""Changes of rows, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.dedup.offset_set import OffsetSet


class Change(NamedTuple):
    """The content that a row is to have."""

    stripe: int
    #: Of the row before.
    version: int
    watermark: int
    done: OffsetSet
    #: The offsets that are done with it.
    offsets: Sequence[range]
    #: Stripe and version of each other row, as acknowledged.
    others: Sequence[tuple[int, int]]


class Statement(NamedTuple):
    """A statement and its parameters."""

    text: str
    parameters: Sequence[object]
