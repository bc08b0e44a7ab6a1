"""The path of a record through the engine: from a poll to its mark."""
