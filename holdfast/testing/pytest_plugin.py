"""The fixtures `world` and `member` of `pip install 'holdfast-mq[testing]'`. See docs/how-to/testing.md.

pytest imports this module in each run, so it imports nothing else of holdfast before a test asks for a fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.testing.scripted.member import MakeApp, Member
    from holdfast.testing.scripted.world import ScriptedWorld


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark that has the arguments of the fixture `world`."""
    config.addinivalue_line(
        "markers", "world(seed=1, ...): what the fixture `world` is made with; see holdfast.testing.ScriptedWorld"
    )


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[ScriptedWorld]:
    """A simulated broker, store and time. `@pytest.mark.world(seed=7, protocol="eager")` changes its arguments."""
    from holdfast.testing import ScriptedWorld  # noqa: PLC0415 - tests without this fixture do not pay for the import

    mark = request.node.get_closest_marker("world")
    with ScriptedWorld(**(mark.kwargs if mark else {})) as made:
        yield made


@pytest.fixture
def member(request: pytest.FixtureRequest, world: ScriptedWorld) -> Callable[..., Member]:
    """Starts members in `world`: `member(make_app)`, or `member()` if your tests have a fixture `make_app`."""

    def start(make_app: MakeApp | None = None, name: str | None = None, *, restart: bool = False) -> Member:
        factory: MakeApp = make_app or request.getfixturevalue("make_app")
        return world.member(factory, name, restart=restart)

    return start
