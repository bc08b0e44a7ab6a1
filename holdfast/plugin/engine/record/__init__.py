"""A record's way: from a poll to its mark."""
