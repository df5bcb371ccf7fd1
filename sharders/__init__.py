"""How to search for a sharding plan. Pure: no files, clock, terminal or global random state."""

from dataclasses import dataclass

SHARDERS = {
    "naive": "sharders.table_iii:Naive",
    "random": "sharders.table_iii:Random",
    "size_greedy": "sharders.table_iii:SizeGreedy",
    "lookup_greedy": "sharders.table_iii:LookupGreedy",
    "norm_lookup_greedy": "sharders.table_iii:NormLookupGreedy",
    "size_lookup_greedy": "sharders.table_iii:SizeLookupGreedy",
    "uniform": "sharders.uniform:Uniform",
    "cost_greedy": "sharders.cost_greedy:CostGreedy",
    "annealing": "sharders.annealing.sharder:Annealing",
    "ilp": "sharders.ilp:Ilp",
    "lp": "sharders.lp:Lp",
    "tuned_greedy": "sharders.cost_greedy:TunedGreedy",
    "lns": "sharders.lns:LargeNeighbourhood",
    "dreamshard": "sharders.dreamshard:DreamShardLike",
    "beam": "sharders.beam:Beam",
    "optuna": "sharders.optuna_search:OptunaSearch",
    "torchrec_greedy": "sharders.torchrec_greedy:TorchRecGreedy",
}
"""Built-in sharders: name -> ``module:Class``, imported when used. Every class is made without
arguments and is a ``sharders.problem.Sharder``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """How a sharder takes part in a portfolio."""

    share: float = 1.0
    """Of the time left that it may take, less what those to come need that may take all; 1: all."""
    urgent: bool = False
    """Whether it takes what it needs even of more than its share, and all the time there is where
    no time would be left for those to come."""


PORTFOLIO = {
    "naive": Member(),
    "lp": Member(share=0.2, urgent=True),
    "uniform": Member(share=0.1),
    "annealing": Member(),
    "tuned_greedy": Member(share=0.8),
    "size_lookup_greedy": Member(),
    "norm_lookup_greedy": Member(),
    "lookup_greedy": Member(),
    "size_greedy": Member(),
    "random": Member(),
}
"""What ``auto`` runs, in this order: a plan at once, then options for all tables by linear
programming, then one type for all tables, then the search that starts from these and from its own
greedy plans and gains most per second (``bench.plan_quality``), and the others if it ends sooner.
Those that say what they need (``problem.Paced``) are left out where there is less time. With 0.3
of the time for ``lp``, 10 CPU seconds end 0.7% higher at 788 tables on 128 GPUs; with 0.1, 0.2%
higher at 856 on 64 (four seeds each; 1 s at 100 on 8 and 400 on 16 differs by less than seeds)."""
