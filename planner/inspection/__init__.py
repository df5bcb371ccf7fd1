"""What recorded ids say about how batches read tables."""
