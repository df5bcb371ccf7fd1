"""What the planner runs on: settings, signals, processes, cores, and what is installed."""
