"""Of all divisions of two ranks' blocks, the best one that fits in memory is drawn."""

from itertools import product
from random import Random

import numpy as np
import pytest

from costmodel.step.template import RANK_FEATURES
from planner.examples import example_problem, example_workload
from sharders.engine.imbalance_penalty import BALANCE_ROOTS
from sharders.engine.search_engine import Engine
from sharders.engine.tables import FITS, Move
from sharders.greedy.cost_greedy import CostGreedy
from sharders.problem.sharding_problem import Budget, ShardingProblem

POWER = 2**BALANCE_ROOTS


def engine_on(problem: ShardingProblem) -> Engine:
    plan = CostGreedy().shard(problem, Budget(), Random(0)).plan
    engine = Engine(problem, [plan])
    engine.start(engine.choices_of(plan), 5)
    return engine


def taken(engine: Engine) -> np.ndarray:
    """Return the seconds that ranks take of every group's features, and of lookups: (.., ranks)."""
    search = engine.search
    rates = np.asarray(search.loads.exchange_rates)
    numbers, loads = np.asarray(search.plan.numbers), np.asarray(search.plan.loads)
    lookups = numbers[search.loads.load_row] + numbers[search.loads.launches_row]
    return np.vstack([rates[:, None] * loads[:, : rates.size].T, lookups])


@pytest.mark.parametrize("fill", [0.5, 0.97])
def test_the_best_of_all_divisions_is_drawn(fill: float) -> None:
    engine = engine_on(example_problem(example_workload(40, seed=2), world_size=4, fill=fill))
    search, reassigner = engine.search, engine.run.reassigner
    move, before = Move(12, search.choices.ranks.shape[1]), taken(engine)
    sums = (before**POWER).sum(axis=1)
    means = (sums / search.plan.num_ranks) ** (1 / POWER)
    weights = np.divide(means, sums, out=np.zeros_like(sums), where=sums > 0)
    free = np.asarray(search.plan.numbers)[search.loads.free_row]
    made = 0
    for _ in range(30):
        reassigner.draw(move)
        effects = effects_of(engine)
        if not effects:
            continue
        both, counts = [reassigner.slowest, reassigner.other], {}
        for division in product((False, True), repeat=len(effects)):
            chosen = [effect for effect, goes in zip(effects, division, strict=True) if goes]
            held = sum(held for _, held in chosen)
            if -free[both[1]] <= held <= free[both[0]]:
                seconds = before[:, both] + sum(effect for effect, _ in chosen)
                counts[division] = float(weights @ (seconds**POWER).sum(axis=1))
        moved = np.asarray(move.table)[: move.length]
        drawn = tuple(table in moved for table in np.asarray(reassigner.table)[: len(effects)])
        assert counts[drawn] <= min(counts.values()) * (1 + 1e-6)
        if move.length > 0:
            made += 1
            assert engine.try_move(move) == FITS
            chosen = [effect for (effect, _), goes in zip(effects, drawn, strict=True) if goes]
            sent = before[:-1, both] + sum(chosen)[:-1]
            assert taken(engine)[:-1, both] == pytest.approx(sent, abs=1e-12)
            search.undo(move)
    assert made > 0


def effects_of(engine: Engine) -> list[tuple[np.ndarray, float]]:
    """Return what both ranks take, and the slowest holds, if a block goes to the other of them."""
    search, reassigner, effects = engine.search, engine.run.reassigner, []
    tables, rates = search.tables, np.asarray(search.loads.exchange_rates)
    for index in range(reassigner.count):
        option = int(search.choices.option[reassigner.table[index]])
        size = tables.rows[tables.first[option] + reassigner.block[index]]
        first = tables.group[option] * len(RANK_FEATURES)
        features = slice(first, first + len(RANK_FEATURES))
        seconds = np.zeros(rates.size + 1)
        seconds[features] = rates[features] * np.asarray(tables.features)[size]
        seconds[-1] = tables.shard_cost[option]
        sign = -1 if reassigner.is_here[index] else 1
        effects.append((sign * np.outer(seconds, [1, -1]), sign * tables.held[size, 0]))
    return effects
