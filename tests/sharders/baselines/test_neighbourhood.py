"""The program of a few free tables beside all of their choices, tried one by one."""

from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest
from machines import machine, topology

from costmodel.base.arrays import Array
from costmodel.base.units import GIB
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload
from sharders.annealing.plan_editor import PlacedOption, PlanEditor
from sharders.baselines.neighbourhood import MEAN_WEIGHT, Neighbourhoods
from sharders.baselines.solvers import Limits
from sharders.greedy.one_pass import Naive
from sharders.problem.options import make_sharding
from sharders.problem.sharding_problem import Budget, ShardingProblem

ROOMY = (80.0, 1000.0)
SCALES = dict(zip(ShardingType, (1.0, 1.3, 0.7, 1.1, 0.9, 1.2, 0.8), strict=True))


def problem_of(seed: int, memory: tuple[float, float]) -> ShardingProblem:
    """Draw five tables for two nodes of two ranks; memory of a rank and of a host is in GiB."""
    rng, hardware = Random(seed), machine(memory=memory[0] * GIB)
    hardware = replace(hardware, host=replace(hardware.host, memory_bytes=memory[1] * GIB))
    tables = tuple(
        EmbeddingTable(
            name=f"t{number}",
            num_embeddings=rng.choice([2_000_000, 3_000_000, 5_000_000]),
            embedding_dim=8,
            pooling_factor=rng.choice([3.0, 10.0, 50.0]),
            compute_kernels=(ComputeKernel.FUSED, ComputeKernel.FUSED_UVM),
            sharding_types=(
                ShardingType.TABLE_WISE, ShardingType.COLUMN_WISE, ShardingType.TABLE_ROW_WISE,
            ),
            min_shard_dim=4,
        )
        for number in range(5)
    )  # fmt: skip
    return ShardingProblem.of(Workload(tables=tables), topology(4, 2, hardware))


def load(problem: ShardingProblem, index: int, choice: PlacedOption) -> Array:
    """Return the cost of a shard on each rank that has one, scaled."""
    table, added = problem.workload.tables[index], np.zeros(4)
    cost = problem.groundwork.costs.cost(table, choice.option).shard_load
    for rank in make_sharding(table, problem.topology, choice.option, choice.ranks).ranks:
        added[rank] += cost * SCALES[choice.option.sharding_type]
    return added


@pytest.mark.parametrize("memory", [ROOMY, (0.75, 1000.0), (0.65, 0.2)])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tables", [(0, 2, 3), (0, 4)])
def test_its_choices_are_the_best_of_all(
    tables: tuple[int, ...], seed: int, memory: tuple[float, float]
) -> None:
    """Tables 0 and 4, on rank 0 or split by rows, load ranks 2 and 3 alike, which have others."""
    problem = problem_of(seed, memory)
    state = PlanEditor(problem)
    state.start(Naive().shard(problem, Budget(), Random(0)).plan)
    near = Neighbourhoods(state)
    near.scales = SCALES
    free = {index: near.choices(index, (3, 1, 0, 2), 3) for index in tables}
    if len(tables) == 2:
        rows = ShardingType.TABLE_ROW_WISE
        free = {
            index: [choices[0], *(each for each in choices if each.option.sharding_type is rows)]
            for index, choices in free.items()
        }
    stays = sum(load(problem, index, state.choices[index]) for index in set(range(5)) - set(tables))

    def value(choices: dict[int, PlacedOption]) -> float:
        chosen = sum(load(problem, index, choice) for index, choice in choices.items())
        return float((stays + chosen).max() + MEAN_WEIGHT * np.mean(chosen))

    tried = (dict(zip(free, each, strict=True)) for each in product(*free.values()))
    every = {tuple(each.values()): value(each) for each in tried if state.fits(each)}
    move = near.best(free, Limits(gap=0.0))
    found = {index: state.choices[index] for index in free} | dict(move or {})
    assert state.fits(found)
    assert value(found) == pytest.approx(min(every.values()), rel=1e-6)
    assert near.loads() == pytest.approx(
        sum(load(problem, *each) for each in enumerate(state.choices))
    )
    if move:
        state.apply(move)
        again = found | dict(near.best(free, Limits(gap=0.0)) or {})
        assert value(again) == pytest.approx(value(found), rel=1e-6)


def test_a_program_of_no_tables_is_not_solved() -> None:
    state = PlanEditor(problem_of(0, ROOMY))
    assert Neighbourhoods(state).best({}, Limits()) is None


def test_choices_are_every_option_on_the_first_ranks() -> None:
    problem = problem_of(0, ROOMY)
    state = PlanEditor(problem)
    state.start(Naive().shard(problem, Budget(), Random(0)).plan)  # table 0 is on rank 0
    fused = [
        (choice.option.sharding_type, choice.option.num_column_shards, choice.ranks)
        for choice in Neighbourhoods(state).choices(0, (3, 1, 0, 2), 2)
        if choice.option.compute_kernel is ComputeKernel.FUSED
    ]
    assert fused == [
        (ShardingType.TABLE_WISE, 1, (0,)),
        (ShardingType.TABLE_WISE, 1, (3,)),
        (ShardingType.TABLE_WISE, 1, (1,)),
        (ShardingType.COLUMN_WISE, 2, (3, 1)),
        (ShardingType.COLUMN_WISE, 2, (3, 0)),
        (ShardingType.TABLE_ROW_WISE, 1, (2,)),
        (ShardingType.TABLE_ROW_WISE, 1, (0,)),
    ]
