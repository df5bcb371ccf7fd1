"""The compiled search: a plan as arrays, moves that change it, and how long its step then takes."""
