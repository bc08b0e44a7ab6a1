"""Partitions that are owned: taken over, handed over, committed. START HERE: rebalance.py."""
