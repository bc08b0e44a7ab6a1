"""Flow control: how many records the app takes in, and how fast."""
