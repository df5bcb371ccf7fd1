"""``planner sweep``: a plan for every machine, number of GPUs and batch of a grid."""
