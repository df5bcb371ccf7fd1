"""Is everything there that the planner needs."""
