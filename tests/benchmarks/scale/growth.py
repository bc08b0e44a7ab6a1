"""What a day of keys makes of a Redis, computed from what a key takes there."""

from __future__ import annotations

DAY_S = 86_400.0


def grown(bytes_a_key: float, keys_a_day: int, *, days: float, window_s: float) -> float:
    """Bytes after so many days of an even flow: a key that is older than the window is gone."""
    return bytes_a_key * keys_a_day * min(days, window_s / DAY_S)
