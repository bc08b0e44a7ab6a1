"""The Django app: bills, and the command that writes them."""
