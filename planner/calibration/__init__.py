"""Measure the machine that the planner runs on, and fit a hardware profile to it."""
