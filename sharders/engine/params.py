"""How annealing searches: every number of it, with what it was measured to gain.

Tuned on the instances of ``bench.plan_quality`` and on those of ``bench.population`` to tune by;
``bench.search_speed`` says how many moves a second it tries.
"""

from dataclasses import dataclass


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
    together_share: float = 0.04
    """Share of the moves that change several tables at once: they take some ten times as long as
    the others, as they often change which collectives there are."""
    finer_share: float = 0.5
    """Share of these that split all tables of a group that have the widest shards; of the others,
    half leave a sharding group. With 0, and half as many in all, one, three and five CPU seconds
    end 1.2 to 1.5% higher in the mean of 14 problems of uneven tables; with two and five times as
    many as now 0.3 and 0.4%."""
    max_together: int = 12
    """The most tables of such a move."""
    suited_share: float = 0.5
    """Share of the joins that take up to ``max_together`` tables which the type suits: a type's
    collectives cost more than a few tables gain by it, so that one at a time none would begin."""
    max_costliest: int = 4
    """Tables that the other joins take at most."""
    suited_tries: int = 8
    """Tables drawn for one that a type suits."""
    any_group_share: float = 0.7
    """Share of the leaves whose group is any that has tables, not that of a table drawn."""
    kernel_share: float = 0.5
    """Share of the leaves that are of one of the group's lookup kernels. While tables left a whole
    sharding type at once, weighted ones and others, 34 tables on 128 GPUs ended 9% higher after ten
    CPU seconds (three seeds; two tables were all of a group), 214 on 64 0.3% and 359 on 128 2.5%;
    23 others within 0.1% in the mean."""
    keep_share: float = 0.85
    """Share of the other options whose column blocks stay where they are, as far as they can."""
    many_shards: int = 6
    """Options that change more shards than this are tried so much less often (and count as moves if
    not): they take as much longer. Three CPU seconds end 0.1% lower at 856 tables on 64 GPUs (eight
    runs), others as before."""
    option_tries: int = 3
    """Options drawn for a table, the one of the least predicted time of which it may take."""
    priced_share: float = 0.5
    """Share of the options that are drawn by their prices in a linear program instead. Ten CPU
    seconds end 0.3 and 0.5% lower with it in the mean of 12 problems (two seeds), three 0.4 and
    0.8%; with all drawn so as much, but one problem 2.6% higher after three."""
    priced_tries: int = 6
    """Options drawn for these. With 3, ten CPU seconds end 0.3% higher, three as low."""
    eagerness: int = 3
    """Power of a uniform number that says how little loaded a drawn rank is."""
    swap_tries: int = 8
    """Tables drawn until one has a block to exchange."""
    reassigned_share: float = 0.05
    """Share of the moves that divide blocks of two ranks anew (``reassign``), each of which takes
    as long as three. Without them, 16 problems of full memory end 0.5, 0.8 and 0.6% higher after 1,
    2 and 3 CPU seconds (32 runs, standard errors 0.2, 0.5 and 0.3%; 16 higher after three, 3
    lower), 41 others as low. With 0.1 they end 0.5, 0.3 and 0.4% lower than without, with 0.4 no
    lower after two."""
    max_reassigned: int = 10
    """The most blocks that are divided. With 8 it is as good, with 12, of which 4,096 divisions are
    looked at, 0.4% higher than without any."""
    refresh_every: int = 64
    """Moves between two looks at what the step waits for."""
    eject_tries: int = 64
    """Blocks of a full rank that are looked at for one that leaves it. While these were blocks of
    any tables, of which the rank has hardly one where ranks are many, and one left for a move, not
    ``max_ejected``, 1, 3 and 10 CPU seconds ended 0.7, 0.1 and 0.3% higher in the mean of 19
    problems of full memory (standard errors 0.2, 0.2 and 0.1%, 38 runs), and 10 seconds 4.0% off
    at worst, not 1.9%; 24 others as low."""
    max_ejected: int = 2
    """Blocks of other tables that leave one after the other for one move."""
    eject_places: int = 8
    """Ranks drawn for where it could go."""
    excess_share: float = 0.5
    """Share of the looks at a plan that does not fit after which moves are of the fullest rank."""
    first_price: float = 1.0
    """Share of the step that holding a rank's memory beyond what there is costs at first. While no
    plan might, 93 to 99.6% of the moves found no room where memory is tight; passing through such
    plans, ten CPU seconds end 2.7 to 3.6% lower in the mean of five such problems on 64 and 128
    GPUs (two seeds twice; 16% at 88 tables on 64 GPUs). At 10 they gain half as much."""
    price_step: float = 1.2
    """Times it costs more after ``refresh_every`` moves that end with a plan that does not fit, and
    less after those that end with one that does. With 1.05 they end 0.9% higher."""
    moves_per_program: int = 3_000
    """Moves drawn for each program of sharding groups that no plan had before, at least: one takes
    as long to lower as some 20 to 60 moves to try. While it took ten times that, 10,000, and five
    trials for a program as against two, ended 0.07 and 0.09% higher after 1 and 3 CPU seconds in
    the mean of 54 problems (standard errors 0.09 and 0.12%, 108 runs). Now 1,000 and 300 end as low
    after 1, 2 and 4 on 40 problems of several kinds or small batches (within 0.1%, standard errors
    0.1%), and a minute would keep that many more programs."""
