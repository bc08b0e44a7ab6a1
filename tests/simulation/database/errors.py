"""What a connection to the simulated database may end a request with."""

from __future__ import annotations


class Broken(Exception):
    """The connection broke: what was asked is done or not."""


class LockTimeout(Exception):
    """Another transaction has held a row for too long."""


class Undone(Exception):
    """The database has undone the transaction to end a conflict (40001, 40P01)."""
