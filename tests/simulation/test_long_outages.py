"""An outage of the store that is longer than the lease ends all sessions, and repeats nothing: whoever comes back first
leaves the others the time to mark what they have done."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from holdfast import Settings
from tests.simulation.drawing.draw import draw
from tests.simulation.drawing.world import Fault
from tests.simulation.judging.judges import Judges
from tests.simulation.playing.play import play
from tests.tiers import first_and_full

if TYPE_CHECKING:
    from tests.simulation.playing.book import Placed

_OUTAGES = (Fault(at_s=2.0, kind="silent", for_s=6.0), Fault(at_s=14.0, kind="deaf", for_s=5.0))
#: Of RocketMQ, whose group is at the store too: in each of these a member once took over what another had done.
_QUEUES = (162, 758)
#: Others, of both brokers, in which members only take back what they had.
_CALM = (1, 13, 31, 40)


def is_known(self: Judges, record: Placed, session: str, since: float) -> bool:
    """Also of a session that is dead: nobody has died here."""
    return not record.replayed


@pytest.mark.parametrize("seed", [*_QUEUES, *first_and_full(_CALM, 1)])
def test_what_was_done_when_the_store_went_is_not_done_again(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Judges, "_known", is_known)
    drawn = draw(seed)
    settings = replace(drawn.settings, max_ahead=Settings().max_ahead)  # a low one keeps back what is to be in hand
    world = replace(drawn, clocks=(), faults=_OUTAGES, settings=settings)
    played = play(replace(world, members=max(2, world.members)))
    assert played.found is None, played.story
