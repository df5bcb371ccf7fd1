"""How to search for a sharding plan. Pure: no files, clock, terminal or global random state."""

from dataclasses import dataclass

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
    "torchrec_greedy": "sharders.greedy.torchrec_greedy:TorchRecGreedy",
}
"""Built-in sharders: name -> ``module:Class``, imported when used. Every class is made without
arguments and is a ``sharders.problem.sharding_problem.Sharder``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortfolioMember:
    """How a sharder takes part in a portfolio."""

    time_fraction: float = 1.0
    """Fraction of the remaining time this sharder may use, after reserving what later full-time
    sharders need; 1.0 means no cap. With a limit in plans, the fraction of the plans left."""
    mandatory: bool = False
    """Whether it takes what it needs even of more than its fraction, and all the time there is
    where no time would be left for those to come, if that is what it needs."""


PORTFOLIO = {
    "naive": PortfolioMember(),
    "annealing": PortfolioMember(mandatory=True),
    "tuned_greedy": PortfolioMember(time_fraction=0.8),
    "torchrec_greedy": PortfolioMember(),
    "size_lookup_greedy": PortfolioMember(),
    "norm_lookup_greedy": PortfolioMember(),
    "lookup_greedy": PortfolioMember(),
    "size_greedy": PortfolioMember(),
    "random": PortfolioMember(),
}
"""What ``auto`` runs, in this order: a plan at once, then the search that starts from programs and
greedy plans of its own and gains most per second (``bench.search_population``), and the others if
it ends sooner. Those that say what they need (``Paced``) are left out where there is less
time: of those that need little, ``torchrec_greedy`` finds the best plans for thousands of tables
(447 ms at 2,000 on 256 GPUs, the other greedies 633 and more)."""
