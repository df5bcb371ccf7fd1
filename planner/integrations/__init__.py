"""Seats for the planner inside other frameworks; each module needs its framework installed."""
