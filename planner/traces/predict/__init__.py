"""Training steps predicted from execution traces, with kernel models instead of durations."""
