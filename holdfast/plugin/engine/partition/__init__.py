"""The partitioned family: takes partitions over, hands them over, commits. START HERE: rebalance.py."""
