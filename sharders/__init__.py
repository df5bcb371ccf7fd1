"""How to search for a sharding plan. Pure: no files, clock, terminal or global random state."""

SHARDERS = {
    "naive": "sharders.table_iii:Naive",
    "random": "sharders.table_iii:Random",
    "size_greedy": "sharders.table_iii:SizeGreedy",
    "lookup_greedy": "sharders.table_iii:LookupGreedy",
    "norm_lookup_greedy": "sharders.table_iii:NormLookupGreedy",
    "size_lookup_greedy": "sharders.table_iii:SizeLookupGreedy",
    "cost_greedy": "sharders.cost_greedy:CostGreedy",
    "annealing": "sharders.annealing:Annealing",
    "ilp": "sharders.ilp:Ilp",
    "tuned_greedy": "sharders.tuned_greedy:TunedGreedy",
    "beam": "sharders.beam:Beam",
    "optuna": "sharders.optuna_search:OptunaSearch",
    "torchrec_greedy": "sharders.torchrec_greedy:TorchRecGreedy",
}
"""Built-in sharders: name -> ``module:Class``, imported when used. Every class is made without
arguments and is a ``sharders.problem.Sharder``."""

PORTFOLIO = (
    "naive",
    "random",
    "size_greedy",
    "lookup_greedy",
    "norm_lookup_greedy",
    "size_lookup_greedy",
    "cost_greedy",
    "annealing",
)
"""What ``auto`` runs, in this order: one-shot sharders, then the search that starts from their
best plans."""
