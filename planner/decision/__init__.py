"""Which of the plans found is chosen, and how sure that is."""
