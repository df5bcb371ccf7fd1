"""The compiled search: a plan as arrays, moves that change it, and how long its step then takes.

``search_engine`` is its face. The modules that have a ``.pxd`` file beside them are compiled when
the package is built: ``tables`` (options as arrays), ``rank_loads``, ``rank_blocks`` and
``search_state`` (the plan under search), ``moves`` and ``eject`` (what is tried), ``annealing_run``
(the loop), ``fill``, ``rank_scores`` and ``kernel_ranks`` (the greedy).
"""
