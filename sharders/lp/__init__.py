"""Options of all tables by linear programming."""
