"""Records that are leased one by one."""
