"""How many tables moves change, and parameters that a close look at a search sets.

These numbers, and the constants of annealing, were tuned on the instances of ``bench.plan_quality``
and on tuning instances of ``bench.population``; ``bench.search_speed`` measures moves per second.
"""

from dataclasses import dataclass

MAX_TOGETHER = 12
"""The most tables that a move changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveParams:
    """How often each kind of move is drawn."""

    together_share: float = 0.04
    """Share of the moves that change several tables at once: they take some ten times as long as
    the others, as they often change which collectives there are."""
    finer_share: float = 0.5
    """Share of these that split all tables of a group with the widest shards; of the rest, half
    leave a sharding group."""
    priced_share: float = 0.5
    """Share of the options that are drawn by their prices in a linear program."""
    moves_per_step: int = 3_000
    """Moves drawn at least for each step of new sharding groups, which takes as long to lower as
    20 to 60 moves to try."""
