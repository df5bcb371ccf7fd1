"""Fits behind the numbers in `planner/profiles`."""
