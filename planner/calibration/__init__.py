"""Measuring the machine that the planner runs on, and fitting a hardware profile to it."""
