"""Dense models read as lists of operators, from small runs of the module on a CPU (needs torch)."""
