"""Annealing over all sharding decisions at once, one move at a time, every move timed exactly.

``sharder`` says in which order; ``schedule`` runs bursts from several plans (``starts``), and
``polish`` descends from the best ones of small problems. The moves are the engine's
(``sharders.engine``).
"""
