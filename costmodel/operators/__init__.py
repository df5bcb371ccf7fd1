"""A dense model as the operators that it runs, forward and backward, at any size of a batch."""
