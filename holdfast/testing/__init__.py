"""For users' own tests: records, and a world in which their app runs without a server. See docs/how-to/testing.md."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.testing.records import MadeFence, make_record
    from holdfast.testing.scripted.effects import Effects
    from holdfast.testing.scripted.member import Member
    from holdfast.testing.scripted.simulate import simulate
    from holdfast.testing.scripted.world import ScriptedWorld

__all__ = ["Effects", "MadeFence", "Member", "ScriptedWorld", "make_record", "simulate"]

_HOMES = {
    "Effects": "holdfast.testing.scripted.effects",
    "MadeFence": "holdfast.testing.records",
    "Member": "holdfast.testing.scripted.member",
    "ScriptedWorld": "holdfast.testing.scripted.world",
    "make_record": "holdfast.testing.records",
    "simulate": "holdfast.testing.scripted.simulate",
}


def __getattr__(name: str) -> object:
    """Import a name when it is asked for: `make_record` works without greenlet."""
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "greenlet":
            raise
        raise ImportError(
            f"holdfast.testing.{name} needs greenlet, which is not installed: pip install 'holdfast-mq[testing]'"
        ) from None
