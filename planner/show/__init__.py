"""How anything is shown: numbers, tables, errors, and where output goes."""
