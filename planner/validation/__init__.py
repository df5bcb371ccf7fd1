"""Train a workload's model under real plans, and hold the predictions against what it takes."""
