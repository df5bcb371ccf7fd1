"""What is planned: the model, the machine, and the sharding plan."""
