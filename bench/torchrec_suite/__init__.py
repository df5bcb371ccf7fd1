"""TorchRec's own tests with ``IterationTimePlanner`` in the place of its planner."""
