"""What a training step runs, read from the execution traces of its ranks."""
