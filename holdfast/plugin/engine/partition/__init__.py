"""The partitioned family: takes partitions over, hands them over, commits. START HERE: partitions.py."""
