"""Worlds that are kept as data: each broke a rule once."""

from __future__ import annotations

from pathlib import Path

from tests.simulation.drawing.world import World

FOLDER = Path(__file__).parent / "worlds"
#: Name of a kept world that fails still -> why. It should be empty.
OPEN: dict[str, str] = {}


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def kept(name: str) -> World:
    return World.from_json((FOLDER / f"{name}.json").read_text())
