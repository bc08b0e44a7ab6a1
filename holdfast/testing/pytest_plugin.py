"""The fixtures `world` and `member` of `pip install 'holdfast[testing]'`. See docs/how-to/testing.md.

pytest imports this in each of its runs: nothing else of holdfast is imported before a test asks for a fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.testing.scripted.member import MakeApp, Member
    from holdfast.testing.scripted.world import ScriptedWorld


def pytest_configure(config: pytest.Config) -> None:
    """The mark that gives the fixture its settings."""
    config.addinivalue_line(
        "markers", "world(seed=1, ...): what the fixture `world` is made with; see holdfast.testing.ScriptedWorld"
    )


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[ScriptedWorld]:
    """A simulated broker, store and time. `@pytest.mark.world(seed=7, protocol="eager")` sets it up otherwise."""
    from holdfast.testing import ScriptedWorld  # noqa: PLC0415 - who does not ask for it does not pay for it

    mark = request.node.get_closest_marker("world")
    with ScriptedWorld(**(mark.kwargs if mark else {})) as made:
        yield made


@pytest.fixture
def member(request: pytest.FixtureRequest, world: ScriptedWorld) -> Callable[..., Member]:
    """Starts members in `world`: `member(make_app)`, or `member()` where your tests have a fixture `make_app`."""

    def start(make_app: MakeApp | None = None, name: str | None = None, *, restart: bool = False) -> Member:
        factory: MakeApp = make_app or request.getfixturevalue("make_app")
        return world.member(factory, name, restart=restart)

    return start
