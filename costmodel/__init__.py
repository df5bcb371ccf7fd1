"""What a sharding plan costs: memory, kernels, and the predicted training step."""
