"""How many tables moves change, and what is set of them where a search is looked at closely.

These numbers, and the constants of annealing, were tuned on the instances of ``bench.plan_quality``
and on those of ``bench.population`` to tune by; ``bench.search_speed`` says how many moves a second
are tried.
"""

from dataclasses import dataclass

MAX_TOGETHER = 12
"""The most tables that a move changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveParams:
    """Which moves are drawn, and how often."""

    together_share: float = 0.04
    """Share of the moves that change several tables at once: they take some ten times as long as
    the others, as they often change which collectives there are."""
    finer_share: float = 0.5
    """Share of these that split all tables of a group that have the widest shards; of the others,
    half leave a sharding group. With 0, and half as many in all, one, three and five CPU seconds
    end 1.2 to 1.5% higher in the mean of 14 problems of uneven tables; with two and five times as
    many as now 0.3 and 0.4%."""
    priced_share: float = 0.5
    """Share of the options that are drawn by their prices in a linear program instead. Ten CPU
    seconds end 0.3 and 0.5% lower with it in the mean of 12 problems (two seeds), three 0.4 and
    0.8%; with all drawn so as much, but one problem 2.6% higher after three."""
    moves_per_program: int = 3_000
    """Moves drawn for each program of sharding groups that no plan had before, at least: one takes
    as long to lower as some 20 to 60 moves to try. While it took ten times that, 10,000, and five
    trials for a program as against two, ended 0.07 and 0.09% higher after 1 and 3 CPU seconds in
    the mean of 54 problems (standard errors 0.09 and 0.12%, 108 runs). Now 1,000 and 300 end as low
    after 1, 2 and 4 on 40 problems of several kinds or small batches (within 0.1%, standard errors
    0.1%), and a minute would keep that many more programs."""
