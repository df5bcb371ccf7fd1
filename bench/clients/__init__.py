"""Public code bases with this planner in the place of TorchRec's, and how their losses compare."""
