"""How much may come, and how fast."""
