"""What is made of the audit's events: judged, told, drawn."""
