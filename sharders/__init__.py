"""How to search for a sharding plan. Pure: no files, clock, terminal or global random state."""

SHARDERS = {
    "naive": "sharders.greedy.one_pass:Naive",
    "random": "sharders.greedy.one_pass:Random",
    "size_greedy": "sharders.greedy.one_pass:SizeGreedy",
    "lookup_greedy": "sharders.greedy.one_pass:LookupGreedy",
    "norm_lookup_greedy": "sharders.greedy.one_pass:NormLookupGreedy",
    "size_lookup_greedy": "sharders.greedy.one_pass:SizeLookupGreedy",
    "uniform": "sharders.greedy.uniform:Uniform",
    "cost_greedy": "sharders.greedy.cost_greedy:CostGreedy",
    "annealing": "sharders.annealing.sharder:Annealing",
    "ilp": "sharders.baselines.ilp:Ilp",
    "lp": "sharders.lp.lp:Lp",
    "tuned_greedy": "sharders.greedy.cost_greedy:TunedGreedy",
    "lns": "sharders.baselines.lns:LargeNeighbourhood",
    "dreamshard": "sharders.baselines.dreamshard:DreamShardLike",
    "beam": "sharders.baselines.beam:Beam",
    "optuna": "sharders.baselines.optuna_search:OptunaSearch",
    "hugectr": "sharders.baselines.hugectr:HugeCtrLike",
    "hugectr_auto": "sharders.baselines.hugectr_mlperf:HugeCtrAuto",
    "hugectr_hier_auto": "sharders.baselines.hugectr_mlperf:HugeCtrHierAuto",
    "table_row_wise": "sharders.baselines.table_row_wise:TableRowWise",
    "torchrec_port": "sharders.torchrec.port:TorchRecPort",
}
"""Built-in sharders: name -> ``module:Class``, imported when used. Every class is made without
arguments and is a ``sharders.problem.sharding_problem.Sharder``."""


PORTFOLIO = (
    "annealing",
    "torchrec_port",
    "size_lookup_greedy",
    "norm_lookup_greedy",
    "lookup_greedy",
    "size_greedy",
    "random",
    "tuned_greedy",
)
"""Sharders that ``auto`` runs, in this order: first the one that begins with plans of linear
programs and greedies and gains most per second (``bench.search_population``), then others if it
ends early."""
