"""A cell over time, as rows of pieces: who was alive, who ran each partition's records, and where nothing went on."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.lab.evidence import Life
    from tests.lab.judge import Verdict

#: Work that is closer together is one piece.
_TOGETHER_S = 0.4
#: A shorter pause is not drawn.
_PAUSE_S = 1.0
#: So long is drawn what takes no time.
_TICK_S = 0.08

Kind = Literal["work", "alive", "frozen", "out", "dead", "pause", "again", "lost"]


class Piece(NamedTuple):
    """From when to when, in seconds. `member`: whose colour it has; "" = its kind's."""

    kind: Kind
    began: float
    ended: float
    member: str = ""


class Row(NamedTuple):
    """A member, or a partition. Later pieces are drawn over earlier ones."""

    name: str
    pieces: tuple[Piece, ...]


def rows(verdict: Verdict) -> list[Row]:
    """Members first, then partitions."""
    return [*_members(verdict), *_partitions(verdict)]


def _members(verdict: Verdict) -> Iterator[Row]:
    lives: dict[str, list[Life]] = defaultdict(list)
    for each in verdict.evidence.lives:
        lives[each.member].append(each)
    for name in sorted(lives):
        pieces: list[Piece] = []
        for life in lives[name]:
            pieces.append(Piece("alive", life.began, life.ended, name))
            worked = [
                (run.start_ns / 1e9, (run.end_ns or run.start_ns) / 1e9) for run in verdict.runs if run.pid == life.pid
            ]
            pieces += [Piece("work", began, min(ended, life.ended), name) for began, ended in _joined(worked)]
            pieces += [Piece("frozen", began, ended) for began, ended in life.frozen]
            pieces += [Piece("out", began, ended) for began, ended in _outside(verdict, life)]
            if life.how != "left":
                pieces.append(Piece("dead", life.ended, life.ended + _TICK_S))
        yield Row(name, tuple(pieces))


def _outside(verdict: Verdict, life: Life) -> Iterator[tuple[float, float]]:
    """When the broker no longer had it in the group."""
    inside = False
    for look, later in pairwise(each for each in verdict.evidence.looks if life.began < each.at < life.ended):
        inside = inside or life.member in look.members
        if inside and life.member not in look.members and look.at < verdict.evidence.over:
            yield look.at, min(later.at, verdict.evidence.over)


def _partitions(verdict: Verdict) -> Iterator[Row]:
    last: dict[object, float] = {}
    work: dict[int, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for run in verdict.runs:
        began = run.start_ns / 1e9
        work[run.where.partition][run.member].append((began, (run.end_ns or run.start_ns) / 1e9))
        last[run.where] = began
    for partition in sorted(work):
        pieces = [
            Piece("work", began, ended, member)
            for member, times in work[partition].items()
            for began, ended in _joined(times)
        ]
        pieces += [
            Piece("pause", each.began, each.ended)
            for each in verdict.pauses
            if each.partition == partition and each.seconds > _PAUSE_S
        ]
        again = [(run.start_ns / 1e9,) * 2 for run in verdict.again if run.where.partition == partition]
        pieces += [Piece("again", began, ended + _TICK_S) for began, ended in _joined(again, _TICK_S)]
        lost = [last[each] for each in verdict.lost if each.partition == partition and each in last]
        pieces += [Piece("lost", each, each + 2 * _TICK_S) for each in lost]
        yield Row(str(partition), tuple(pieces))


def _joined(times: Iterable[tuple[float, float]], together_s: float = _TOGETHER_S) -> Iterator[tuple[float, float]]:
    """The same with what is close together in one. In the order of their beginnings."""
    began = ended = None
    for one, other in sorted(times):
        if began is None or ended is None or one > ended + together_s:
            if began is not None and ended is not None:
                yield began, max(ended, began + _TICK_S)
            began, ended = one, other
        else:
            ended = max(ended, other)
    if began is not None and ended is not None:
        yield began, max(ended, began + _TICK_S)
