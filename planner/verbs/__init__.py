"""What can be done with plans: made, loaded, compared, explained, and what they are for changed."""
