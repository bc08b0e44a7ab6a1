"""Positions in the database of the effects: PostgreSQL (`pip install 'holdfast-mq[postgres]'`) or a SQLite file."""

from holdfast.adapters.sql.store import SqlPositions

__all__ = ["SqlPositions"]
