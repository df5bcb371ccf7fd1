"""A sharder from outside."""
