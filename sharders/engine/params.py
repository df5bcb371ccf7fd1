"""How annealing searches: every number of it, with what it was measured to gain.

Tuned on the instances of ``bench.plan_quality``; ``bench.search_speed`` says how many moves a
second it tries.
"""

from dataclasses import dataclass, field

from costmodel.base.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveParams:
    """What moves are drawn, and how often.

    The shares were varied one by one and together, from plans that were balanced before (means of
    3 to 16 runs): with those of the first version five CPU seconds end 0.5% higher at 856 tables on
    64 GPUs and 0.7% at 788 on 128, two 0.1% at 400 on 16 and 0.4% at 100 on 8.
    """

    critical_share: float = 0.8
    """Share of the moves that change a table which the step waits for."""
    swap_share: float = 0.25
    """Share of the moves that exchange the places of two tables' blocks."""
    option_share: float = 0.6
    """Share that shard a table in another way; those left move one block."""
    together_share: float = 0.02
    """Share that change several tables at once: they take some ten times as long as the others, as
    they often change which collectives there are."""
    max_together: int = 12
    """The most tables of such a move."""
    suited_share: float = 0.5
    """Share of the joins that take up to ``max_together`` tables which the type suits: a type's
    collectives cost more than a few tables gain by it, so that one at a time none would begin."""
    max_costliest: int = 4
    """Tables that the other joins take at most."""
    suited_tries: int = 8
    """Tables drawn for one that a type suits."""
    any_type_share: float = 0.7
    """Share of the leaves whose type is any, not that of a table drawn."""
    keep_share: float = 0.85
    """Share of the other options whose column blocks stay where they are, as far as they can."""
    many_shards: int = 6
    """Options that change more shards than this are tried so much less often (and count as moves if
    not): they take as much longer. Three CPU seconds end 0.1% lower at 856 tables on 64 GPUs (eight
    runs), others as before."""
    option_tries: int = 3
    """Options drawn for a table, the cheapest of which it may take."""
    eagerness: int = 3
    """Power of a uniform number that says how little loaded a drawn rank is."""
    swap_tries: int = 8
    """Tables drawn until one has a block to exchange."""
    refresh_every: int = 64
    """Moves between two looks at what the step waits for."""
    eject_tries: int = 64
    """Tables looked at for one that leaves a full rank."""
    eject_places: int = 8
    """Ranks drawn for where it could go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningParams:
    """How the greedy's rule is tuned before annealing."""

    trials: int = 1000
    """After some 1000 rules hardly any better ones come up, from 100 tables on 8 GPUs to 788 on
    128."""
    trials_share: float = 0.25
    """Share of the plans that tuning may take."""
    time_share: float = 0.25
    """Share of the time left that it may take. It is what large problems gain most by where there
    is nothing else: annealing changes few tables at a time. With half of that time, ten seconds of
    annealing alone end 1.5% higher at 856 tables on 64 GPUs; with twice as much, one second of
    ``auto`` ends 0.9% higher at 100 on 8."""
    behind: float = 1.02
    share_behind: float = 0.05
    """While its best plan takes ``behind`` times as long as the best one known, it may take that
    share of the time instead."""
    random_rules: int = 40
    """Tried beside the usual ones and those that prefer one sharding type."""
    num_chains: int = 8
    """Evolve from the best rules."""
    crossed_share: float = 0.5
    """Share of the children that have about half of their parameters from another chain: chains
    alone end at steps 10% apart (856 tables on 64 GPUs), these within 2%."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnealingParams:
    """Bursts of annealing: from which plans, how long, and how hot."""

    moves: MoveParams = field(default_factory=MoveParams)
    tuning: TuningParams = field(default_factory=TuningParams)
    max_starts: int = 6
    """Plans to start from, best first, no two alike: annealing moves few tables at a time."""
    alike: float = 0.9
    """Share of the tables that alike plans shard by the same type over as many ranks."""
    max_behind: float = 1.2
    """Times the best plan: slower ones are not annealed, as in all runs looked at they ended
    behind."""
    balancing_moves: int = 10
    """Moves for each table that balance a plan: at 856 tables on 64 GPUs five gain 2 to 7% of the
    step, and 140 another 0.5%, as annealing does."""
    few_types: int = 2
    max_of_few_types: int = 5
    """And so many plans of so few sharding types: annealing finds where another type helps, but not
    that a type which many tables have is not worth its collectives."""
    first_burst: int = 50
    """Moves of the first bursts, for each table; the ones after them are longer by ``growth``."""
    growth: float = 8.0
    """One burst of all the time there is ends lower than several that take it together (with 2,000
    moves a table, 0.7% at 856 tables on 64 GPUs), so the last one takes it."""
    field_share: float = 0.25
    """Share of the time left that the first bursts may take: where they would take longer, there
    are fewer of them."""
    hottest: float = 0.1
    """Temperature at the begin of a burst, as a share of the mean table's part of the step. A third
    of it loses 1% at 100 tables on 8 GPUs, twice as much 0.3 to 0.5% at 400 on 16 and 788 on 128
    (10 CPU seconds, two to four seeds; plans of one setting differ by 0.3%)."""
    warm: int = 600
    """Moves for each table below which bursts begin cooler, by the square root: in less time than
    it takes to find back, heat only undoes what was balanced before."""
    cold: float = 1e-5
    """Temperature at the end, as a share of the step time."""
    moves_at_once: int = 4000
    """Moves between two looks at the budget, at most."""
    look_every: Seconds = 0.05
    """Seconds between two looks at the budget, about, once the time of a move is known."""
    min_gain: float = 1e-3
    """Share of the step time that a burst must gain if a longer one is to follow: less than the
    model can tell apart is not worth seconds of search."""
    max_quiet_rounds: int = 2
    """Rounds of bursts from all plans that gain less, one after the other, until the search ends:
    after one, three of 13 seeds end in a valley 9% higher on the MLPerf DCNv2 on 8 GPUs."""
