"""What an engine can be asked for: metrics and the values they are read from."""
