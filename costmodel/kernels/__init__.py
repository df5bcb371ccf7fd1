"""How long one kernel takes."""
