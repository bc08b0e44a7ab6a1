"""The command `holdfast`. The only adapter that may import its siblings; nothing imports it."""

from holdfast.adapters.cli.entry import main

__all__ = ["main"]
