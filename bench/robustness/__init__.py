"""How much bad luck and malice the planner takes; run ``python -m bench.robustness``."""
