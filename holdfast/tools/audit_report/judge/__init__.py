"""From what consumers told to what is thought of it. Pure; see docs/operations/audit.md."""
