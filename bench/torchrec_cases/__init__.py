"""What becomes of what a TorchRec script tells the planner, before and now."""
