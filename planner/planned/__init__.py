"""What a plan is handed on as: the plan, what it is for, and the report on it, as data."""
