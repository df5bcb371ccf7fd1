"""How batches read tables, from recorded ids."""
