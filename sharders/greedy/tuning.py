"""Plans to anneal from: rules of the greedy ``fill``, tuned from many beginnings.

Every chain is a (1+1) evolution strategy (Rechenberg, 1973) over the rule's parameters, and chains
cross: a child may have about half of its parameters from another one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, inf, log
from random import Random

from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingType
from sharders.engine.search_engine import Engine
from sharders.engine.tables import Choices
from sharders.problem.sharding_problem import Budget, Progress

Parameters = Mapping[str, float]
Found = tuple[Seconds, Choices]
"""A plan's step time, and the plan."""
RANGES: Mapping[str, tuple[float, float]] = {
    "split_above": (0.02, 4.0),
    "replicate_below": (0.0, 4.0),
    "memory": (0.0, 1.0),
    **{f"weight {kind.value}": (-1.5, 1.5) for kind in ShardingType},
}
"""Ranges of the thresholds (``fill.Rule``), of the weight of memory, and of the logarithm of each
sharding type's factor on costs."""
NEUTRAL: Parameters = {
    **dict.fromkeys(RANGES, 0.0),
    "apart": 0.0,
    "split_above": 0.5,
    "replicate_below": 1.0,
}
SPLIT_ABOVE = (float("inf"), 1.0, 0.5, 0.25)
"""Thresholds: a table is split if its load exceeds this share of a balanced rank's load."""
REPLICATE_BELOW = (0.0, 0.5, 1.0, 2.0)
"""Thresholds: a table is replicated if that costs every rank at most this multiple of its share of
the sharded load."""
NOTHING_WHOLE = 1e-9
"""A threshold that splits every table, so that weights alone say how it is sharded."""
FIRST_STEP, LAST_STEP = 0.3, 0.02
"""First and smallest standard deviation of a change, as a share of a parameter's range."""
GROW = 1.5
"""Growth of the step after a success; after a failure it shrinks by the fourth root, so that one
trial in five succeeds (Rechenberg's rule)."""
TRIALS = 1000
"""Number of rules that are tried."""
RANDOM_RULES = 40
"""Number of random rules tried besides the usual ones and those that prefer one sharding type."""
NUM_CHAINS = 8
"""Number of chains, which start from the best rules."""
CROSSED_SHARE = 0.5
"""Share of the children that have about half of their parameters from another chain."""


@dataclass(slots=True)
class Chain:
    """An evolution strategy with one parent and one child."""

    parent: Parameters
    time: Seconds
    """Step time of the parent's plan."""
    step: float = FIRST_STEP

    def child(self, rng: Random, instead: Parameters | None = None) -> Parameters:
        """Return changed parameters of the parent, or of ``instead``."""
        return _changed(self.parent if instead is None else instead, self.step, rng)

    def tell(self, child: Parameters, step_time: Seconds) -> None:
        """Make a child the parent if its plan is at least as fast."""
        success = step_time <= self.time
        grown = self.step * (GROW if success else GROW**-0.25)
        self.step = max(LAST_STEP, min(FIRST_STEP, grown))
        if success:
            self.parent, self.time = child, step_time


def kernels_apart(rule: Parameters) -> Parameters:
    """Return a rule with as few lookup kernels on a rank as possible."""
    return {**rule, "apart": 1.0}


def drawn(rng: Random) -> Parameters:
    """Return drawn parameters, each anywhere in its range."""
    parameters = {
        name: exp(rng.uniform(log(low), log(high)))
        if name == "split_above"
        else rng.uniform(low, high)
        for name, (low, high) in RANGES.items()
    }
    return {**NEUTRAL, **parameters}


def _changed(parent: Parameters, step: float, rng: Random) -> dict[str, float]:
    """Return parameters of which each is changed with a probability of one half."""
    child = dict(parent)
    for name, (low, high) in RANGES.items():
        if rng.random() < 0.5:
            continue
        if name == "split_above":
            moved = log(parent[name]) + rng.gauss(0.0, step) * log(high / low)
            child[name] = min(high, max(low, exp(moved)))
        else:
            moved = parent[name] + rng.gauss(0.0, step) * (high - low)
            child[name] = min(high, max(low, moved))
    return child


class Tuning:
    """Tunes the greedy's rule, and keeps the best plan of every set of sharding types."""

    def __init__(self, engine: Engine, budget: Budget, rng: Random, trials: int = TRIALS) -> None:
        self.engine, self.budget, self.rng, self.trials = engine, budget, rng, trials
        self.evaluated, self.best = 0, inf
        self.found: dict[int, Found] = {}
        self.chains: list[Chain] = []
        """Chains, ordered by their first rules, best first."""

    def run(self) -> list[Found]:
        """Return the best plan of every set of sharding types, best first; none if none fits."""
        self.begin(usual_rules())
        self.evolve()
        return self.plans()

    def begin(self, rules: Iterable[Parameters]) -> None:
        """Try some rules, except those tried before."""
        tried = [chain.parent for chain in self.chains]
        for rule in rules:
            if self.found and self._over():
                break
            if rule not in tried:
                self.chains.append(Chain(rule, self._time(rule)))

    def evolve(self) -> None:
        """Try random rules, and start chains from the best of all."""
        for _ in range(RANDOM_RULES):
            if not self._over():
                rule = drawn(self.rng)
                self.chains.append(Chain(rule, self._time(rule)))
        ranked = sorted(self.chains, key=lambda chain: chain.time)
        self.chains = ranked[:NUM_CHAINS]
        while not self._over():
            for chain in self.chains:
                self._step(chain, self.chains)

    def plans(self) -> list[Found]:
        """Return the best plan of every set of sharding types so far, best first."""
        return sorted(self.found.values(), key=lambda pair: pair[0])

    def rules(self, count: int) -> list[Parameters]:
        """Return the best rules so far."""
        ranked = sorted(self.chains, key=lambda chain: chain.time)
        return [chain.parent for chain in ranked[:count]]

    def _step(self, chain: Chain, chains: Sequence[Chain]) -> None:
        """Time a child of one chain, which may be crossed with another, and tell the chain."""
        if self._over():
            return
        rng = self.rng
        child = chain.child(
            rng, self._crossed(chain, chains) if rng.random() < CROSSED_SHARE else None
        )
        chain.tell(child, self._time(child))

    def _crossed(self, chain: Chain, chains: Sequence[Chain]) -> Parameters:
        other = self.rng.choice(chains).parent
        return {
            name: other[name] if self.rng.random() < 0.5 else own
            for name, own in chain.parent.items()
        }

    def _over(self) -> bool:
        return self.evaluated >= self.trials or self.budget.spent(self.evaluated)

    def _time(self, rule: Parameters) -> Seconds:
        """Return the step time of a rule's plan; infinite where it finds no room."""
        self.evaluated += 1
        seconds = self.engine.fill(rule)
        if seconds == inf:
            return inf
        types = self.engine.present_types()
        if types not in self.found or seconds < self.found[types][0]:
            self.found[types] = seconds, self.engine.present()
        if seconds < self.best:
            self.best = seconds
            self.budget.report(Progress(evaluated=self.evaluated, best=seconds))
        return seconds


def usual_rules() -> Iterator[Parameters]:
    """Yield rules of all usual thresholds, and those that prefer one sharding type."""
    yield from threshold_rules()
    yield from _one_type_rules()


def _one_type_rules() -> Iterator[Parameters]:
    """Yield rules that prefer one sharding type: where launches cost most, few types are best."""
    low, high = RANGES[f"weight {ShardingType.TABLE_WISE.value}"]
    for kind in ShardingType:
        weights = {f"weight {each.value}": low if each is kind else high for each in ShardingType}
        yield {**NEUTRAL, **weights, "split_above": NOTHING_WHOLE}


def threshold_rules() -> Iterator[Parameters]:
    """Yield rules of all usual thresholds."""
    coarsest = RANGES["split_above"][1]
    for split, replicate in product(SPLIT_ABOVE, REPLICATE_BELOW):
        yield {
            **NEUTRAL,
            "split_above": min(split, coarsest),
            "replicate_below": replicate,
        }
