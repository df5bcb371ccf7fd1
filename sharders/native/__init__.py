"""The annealer's compiled core: a problem as arrays, and moves tried on them by numba.

Imported only where a search asks for it: importing numba takes half a second, and compiling, once
per machine, a minute or two.
"""
