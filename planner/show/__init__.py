"""How numbers, tables and errors are shown, and where output goes."""
