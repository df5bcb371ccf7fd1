"""Annealing over all sharding decisions at once, one move at a time, every move timed exactly.

``sharder`` says in which order; ``schedule`` runs bursts from several plans, ``tuning`` makes the
plans to begin with. The modules that have a ``.pxd`` file beside them are compiled when the package
is built: ``tables`` (options as arrays), ``loads`` and ``state`` (the plan under search), ``moves``
and ``eject`` (what is tried), ``burst`` (the loop), ``fill`` (the greedy).
"""
