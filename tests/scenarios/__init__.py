"""Members of a group as processes on real servers: joining, leaving, crashing, stalling."""
