"""A group whose members are processes on real servers: traffic, a ledger of what handlers did, a referee over it."""
