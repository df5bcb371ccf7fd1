"""Lower bounds on the step time of any plan."""
