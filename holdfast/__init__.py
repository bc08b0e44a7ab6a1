"""holdfast: consumers that keep their grip through a rebalance."""

__version__ = "0.1.0"
