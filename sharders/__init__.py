"""How to search for a sharding plan. Pure: no files, clock, terminal or global random state."""

SHARDERS = {
    "naive": "sharders.table_iii:Naive",
    "random": "sharders.table_iii:Random",
    "size_greedy": "sharders.table_iii:SizeGreedy",
    "lookup_greedy": "sharders.table_iii:LookupGreedy",
    "norm_lookup_greedy": "sharders.table_iii:NormLookupGreedy",
    "size_lookup_greedy": "sharders.table_iii:SizeLookupGreedy",
    "uniform": "sharders.uniform:Uniform",
    "cost_greedy": "sharders.cost_greedy:CostGreedy",
    "annealing": "sharders.annealing:Annealing",
    "ilp": "sharders.ilp:Ilp",
    "lp": "sharders.lp:Lp",
    "tuned_greedy": "sharders.tuned_greedy:TunedGreedy",
    "lns": "sharders.lns:LargeNeighbourhood",
    "dreamshard": "sharders.dreamshard:DreamShardLike",
    "beam": "sharders.beam:Beam",
    "optuna": "sharders.optuna_search:OptunaSearch",
    "torchrec_greedy": "sharders.torchrec_greedy:TorchRecGreedy",
}
"""Built-in sharders: name -> ``module:Class``, imported when used. Every class is made without
arguments and is a ``sharders.problem.Sharder``."""

PORTFOLIO = {
    "naive": 1.0,
    "lp": 0.3,
    "uniform": 0.1,
    "annealing": 1.0,
    "tuned_greedy": 0.8,
    "size_lookup_greedy": 1.0,
    "norm_lookup_greedy": 1.0,
    "lookup_greedy": 1.0,
    "size_greedy": 1.0,
    "random": 1.0,
}
"""What ``auto`` runs, in this order, and the share of the time left that each may take: a plan at
once, then options for all tables by linear programming, then one type for all tables, then the
search that starts from these and from its own greedy plans and gains most per second
(``bench.plan_quality``), and the others if it ends sooner."""
