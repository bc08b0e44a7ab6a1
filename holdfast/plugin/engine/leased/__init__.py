"""The leased family: sources that lease records one by one."""
