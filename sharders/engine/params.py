"""How annealing searches: every number of it, with what it was measured to gain.

Tuned on the instances of ``bench.plan_quality`` and on those of ``bench.population`` to tune by;
``bench.search_speed`` says how many moves a second it tries.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningParams:
    """How the greedy's rule is tuned."""

    trials: int = 1000
    """Rules that are tried. After these hardly any better ones come up, from 100 tables on 8 GPUs
    to 788 on 128."""
    random_rules: int = 40
    """Tried beside the usual ones and those that prefer one sharding type."""
    num_chains: int = 8
    """Evolve from the best rules."""
    crossed_share: float = 0.5
    """Share of the children that have about half of their parameters from another chain: chains
    alone end at steps 10% apart (856 tables on 64 GPUs), these within 2%."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeSetParams:
    """Which sets of sharding types are tried, and how their first plans are made."""

    expanded: float = 1.03
    """Times the least value of a set's linear program, up to which neighbours are tried."""
    behind: float = 1.06
    """Times that value, up to which plans are made."""
    best_rules: int = 3
    """The best of the usual rules, which are tried of every set besides a few others. While 300
    rules were tuned before, and runs begun from six of their plans, one CPU second ended 0.3%
    higher and two to five as high in the mean of 43 problems (63 runs, standard errors 0.1 to
    0.2%)."""
    changes: int = 3
    """Changes of the best one that are tried then."""
    packing: int = 50
    """What packing whole tables may take at first, in moves of annealing for each table."""
    max_changed: int = 3
    """Plans that contend, of those with all tables of a type sharded by others
    (``annealing.type_changes``)."""
    changed_behind: float = 1.02
    """Times the step that they began with, up to which they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnealingParams:
    """Runs of annealing: from which plans, how long, and how hot."""

    moves: MoveParams = field(default_factory=MoveParams)
    type_sets: TypeSetParams = field(default_factory=TypeSetParams)
    max_contenders: int = 12
    """Sets of types that runs go on in."""
    decay: float = 1.5
    """Times less that each set is annealed than the one before it, the best one most."""
    behind_power: float = 10.0
    """Power of the times by which a set's plan is longer than the best one, by which it is annealed
    less, too: 10% behind, 2.6 times less."""
    balance_range: tuple[float, float] = (0.05, 1.0)
    """Between which the weight of uneven ranks is drawn for every run: where ranks send few tables'
    outputs each, a step is shorter only when none sends as many as the fullest ones, and many have
    to move before. At 600 tables on 128 GPUs, where every rank sends four or five, long runs end at
    44.6 ms by a weight of 0.05 and at 40.9 by 0.5; at 100 tables on 128, where a few decide, short
    ones at 15.1 and 16.2. Three CPU seconds end 0.3% lower with it than with 0.05, and 0.05 to 0.4
    where a run had gained nothing (58 problems, 84 runs, standard error 0.13%; 36 lower, 23
    higher)."""
    moves_per_set: int = 5
    """Moves for each option of all tables between two sets that are looked at first: estimating one
    takes as long as 1 to 3. With twice as many, and programs that took as long as 3 to 7, three CPU
    seconds ended 0.6% higher in the mean of 14 uneven problems, and ten as low."""
    best_sets: int = 3
    """Contenders next to whose sets of types others are tried when programs know of no more. On 14
    problems of 26 to 76 tables on several nodes ten CPU seconds end 0.4% lower with it (standard
    error 0.2%, 42 runs), 72 tables on 64 GPUs 4%."""
    max_different: int = 6
    """Best plans of sets of types that small problems are descended in from."""
    balancing_moves: int = 10
    """Moves for each table that balance a plan: at 856 tables on 64 GPUs five gain 2 to 7% of the
    step, and 140 another 0.5%, as annealing does."""
    first_run: int = 50
    """Moves of a set's first run, for each table; later ones are as long as all before."""
    first_share: float = 0.01
    """Share of all moves so far that a set's first run has, if that is more: sets that come late
    contend with plans that have had hundreds of times as many. While they had ``first_run`` alone,
    eight CPU seconds ended 0.10% higher in the mean of 37 problems (70 runs, standard error 0.06%;
    23 lower now, 12 higher), and the best set of 56 tables on 16 GPUs was left behind after 3 ms.
    With 0.005 they end as high, and with 0.025 two seconds end 0.3% higher."""
    heat: float = 0.1
    """Temperature at the begin of a run, as a share of the mean table's part of the step, about
    which the first ones are drawn. None is best everywhere: of 0.02 to 8, the coolest ends lowest
    at 500 tables on 64 GPUs, and the hottest where tables lie in host memory, too, by 12%."""
    heat_spread: float = 1.0
    """Standard deviation of its logarithm."""
    heat_learned: float = 0.3
    """Share of the way that the middle goes to the heat of a run that has gained."""
    heat_range: tuple[float, float] = (0.02, 10.0)
    any_heat_share: float = 0.2
    """Share of the runs whose heat is any of the range."""
    cold: float = 1e-5
    """Temperature at the end, as a share of the step time."""
    moves_at_once: int = 4000
    """Moves between two looks at the budget, at most."""
    look_every: Seconds = 0.05
    """Seconds between two looks at the budget, about, once the time of a move is known."""
    min_gain: float = 1e-3
    """Share of the step time that counts as a gain: less than the model can tell apart is not worth
    seconds of search."""
    quiet_moves: int = 10_000
    quiet_share: float = 0.6
    """The search ends after so many moves for each table without a gain, and so large a share of
    all its moves; it is then begun anew."""
    max_fruitless: int = 3
    """Searches begun anew, one after the other, that gain nothing, after which all ends."""
