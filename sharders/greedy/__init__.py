"""Greedies: plans made in one pass over the tables, by a rule."""
