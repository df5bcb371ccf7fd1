"""Annealing over all sharding decisions at once, one move at a time, every move timed exactly.

``sharder`` says in which order; ``type_sets`` makes plans of one set of sharding types after
another, by linear ``programs`` and greedy rules; ``schedule`` anneals within each, from these or
from plans known before (``starts``); ``polish`` descends from the best ones of small problems. The
moves are the engine's (``sharders.engine``).
"""
