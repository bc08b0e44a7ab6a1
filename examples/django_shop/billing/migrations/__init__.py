"""Django looks here."""
