"""The audit's report: the events judged, told, drawn."""
