"""What is searched: a problem, every table's options, their costs, and the memory they need."""
