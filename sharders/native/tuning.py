"""Plans to anneal from: the compiled greedy, its rule tuned from many beginnings."""

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random

from costmodel.plan import ShardingType
from costmodel.units import Seconds
from sharders.cost_greedy import REPLICATE_BELOW, SPLIT_ABOVE
from sharders.native.engine import Engine
from sharders.native.greedy import rule_of
from sharders.native.state import Choices
from sharders.option_costs import OptionCosts
from sharders.problem import Budget, Progress
from sharders.tuned_greedy import NEUTRAL, RANGES, Chain, Parameters, drawn

TRIALS = 1000
"""After some 1000 rules hardly any better ones come up, from 100 tables on 8 GPUs to 788 on 128."""
TRIALS_SHARE, TIME_SHARE = 0.25, 0.25
"""Of the plans and of the time left, what tuning may take. It is what large problems gain most by
where there is nothing else: annealing changes few tables at a time. With half of that time, ten
seconds of annealing alone end 1.5% higher at 856 tables on 64 GPUs; with twice as much, one second
of ``auto`` ends 0.9% higher at 100 on 8."""
BEHIND, SHARE_BEHIND = 1.02, 0.05
"""While its best plan takes so many times as long as the best one known, it may take less time."""
RANDOM_RULES = 40
"""Tried beside those of ``cost_greedy`` and those that prefer one sharding type."""
CHAINS = 8
"""Evolve from the best rules."""
NOTHING_WHOLE = 1e-9
"""A threshold above which every table is split, so that weights alone say how it is sharded."""
CROSSED = 0.5
"""Share of the children that have about half of their parameters from another chain: chains alone
end at steps 10% apart (856 tables on 64 GPUs), these within 2%."""


class Tuning:
    """Tunes the greedy's rule, and keeps the best plan of every set of sharding types."""

    def __init__(
        self, engine: Engine, budget: Budget, rng: Random, known: Sequence[Seconds]
    ) -> None:
        problem, evaluated = engine.problem, len(known)
        self.engine, self.budget, self.rng, self.evaluated = engine, budget, rng, evaluated
        self.goal = BEHIND * min(known, default=float("inf"))
        self.balanced_load, self.capacity = OptionCosts(problem).balanced_load, problem.capacity
        share = 1 / TRIALS_SHARE
        self.trials = int(budget.left(evaluated, int(share * TRIALS)) / share)
        left = budget.time_left()
        self.time = left if 0 < left < float("inf") else 0.0
        self.best: Seconds = float("inf")
        self.found: dict[int, tuple[Seconds, Choices]] = {}

    def run(self) -> list[tuple[Seconds, Choices]]:
        """Return the best plan of every set of sharding types, best first; none if none fits."""
        chains = [Chain(rule, self._time(rule)) for rule in _usual_rules()]
        for _ in range(RANDOM_RULES):
            if not self._over():
                rule = drawn(self.rng)
                chains.append(Chain(rule, self._time(rule)))
        chains = sorted(chains, key=lambda chain: chain.time)[:CHAINS]
        while not self._over():
            for chain in chains:
                self._step(chain, chains)
        return sorted(self.found.values(), key=lambda pair: pair[0])

    def _step(self, chain: Chain, chains: Sequence[Chain]) -> None:
        if self._over():
            return
        rng = self.rng
        child = chain.child(rng, self._crossed(chain, chains) if rng.random() < CROSSED else None)
        chain.tell(child, self._time(child))

    def _crossed(self, chain: Chain, chains: Sequence[Chain]) -> Parameters:
        other = self.rng.choice(chains).parent
        return {
            name: other[name] if self.rng.random() < 0.5 else own
            for name, own in chain.parent.items()
        }

    def _over(self) -> bool:
        share = TIME_SHARE if self.best <= self.goal else SHARE_BEHIND
        late = self.budget.time_left() < (1 - share) * self.time
        return self.trials <= 0 or self.budget.spent(self.evaluated) or late

    def _time(self, rule: Parameters) -> Seconds:
        """Return the step time of a rule's plan; infinite where it finds no room."""
        self.trials -= 1
        self.evaluated += 1
        seconds = self.engine.fill(rule_of(rule, self.balanced_load, self.capacity))
        if seconds is None:
            return float("inf")
        types = self.engine.present_types()
        if types not in self.found or seconds < self.found[types][0]:
            self.found[types] = seconds, self.engine.present()
        if seconds < self.best:
            self.best = seconds
            self.budget.report(Progress(evaluated=self.evaluated, best=seconds))
        return seconds


def _usual_rules() -> Iterator[Parameters]:
    """Yield the rules of ``cost_greedy``, and those that prefer one sharding type."""
    low, high = RANGES[f"weight {ShardingType.TABLE_WISE.value}"]
    coarsest = RANGES["split_above"][1]
    for split, replicate in product(SPLIT_ABOVE, REPLICATE_BELOW):
        yield {
            **NEUTRAL,
            "split_above": min(split, coarsest),
            "replicate_below": replicate,
        }
    for kind in ShardingType:
        weights = {f"weight {each.value}": low if each is kind else high for each in ShardingType}
        yield {**NEUTRAL, **weights, "split_above": NOTHING_WHOLE}
