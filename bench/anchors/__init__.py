"""Every public measurement beside what the model says of it today: the gate of the cost model."""
