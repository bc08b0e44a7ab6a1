"""Tables in a temporary database of this process."""
