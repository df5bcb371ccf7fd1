"""The annealer's compiled core: a problem as arrays, and moves tried on them by numba.

Imported only where a search asks for it: compiling takes a minute or two, once per machine, and
then loading what was made some 60 ms (``planner.compiling``).
"""
