"""Checks that everything the planner needs is there."""
