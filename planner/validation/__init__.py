"""Training a workload's model under real plans, and comparing measured with predicted steps."""
