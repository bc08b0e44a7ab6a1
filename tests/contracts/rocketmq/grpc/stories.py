"""A test that is played beside others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from tests.contracts.rocketmq.grpc.lab import Lab

    Story = Callable[[Lab], None]


#: All stories share the machine: a test waits for its own as long as the longest may take.
_PATIENCE_S = 600


def story(play: Story) -> Callable[[dict[str, Future[None]]], None]:
    """Make a test of it, which waits for its end."""

    def test(playing: dict[str, Future[None]]) -> None:
        playing[play.__name__].result()

    test.__name__, test.__doc__ = play.__name__, play.__doc__
    test.story = play  # type: ignore[attr-defined]
    return pytest.mark.timeout(_PATIENCE_S)(test)


def story_of(test: object) -> Story | None:
    """The story of a test that is one."""
    return cast("Story | None", getattr(cast("Any", test), "story", None))
