"""How the ids of a batch spread over the rows of a table."""
