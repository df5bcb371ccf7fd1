"""``planner sweep``: which machine, how many GPUs, what batch; a plan for every point of a grid."""
