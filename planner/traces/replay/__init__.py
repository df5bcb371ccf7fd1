"""Replaying profiled runs: their traces as execution graphs, timed by the planner's simulator."""
