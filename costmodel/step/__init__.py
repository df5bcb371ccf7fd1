"""What happens on every rank during a step, and when."""
