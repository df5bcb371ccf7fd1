"""Plans by how many columns the fullest ranks send."""

from dataclasses import replace

import numpy as np
import pytest

from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import EmbeddingTable
from planner.examples import example_problem, example_workload
from sharders.annealing import levels as levels_module
from sharders.annealing.levels import MOST, LevelSearch
from sharders.annealing.programs import Programs, SolvedSet
from sharders.annealing.type_sets import bits
from sharders.engine.search_engine import Engine
from sharders.problem.sharding_problem import ShardingProblem

RANKS = 16
TYPES = bits([
    ShardingType.COLUMN_WISE,
    ShardingType.TABLE_WISE,
    ShardingType.TABLE_COLUMN_WISE,
    ShardingType.TABLE_ROW_WISE,
])


def problem() -> ShardingProblem:
    """Return tables of one width, whose pooling factors differ."""
    tables = tuple(
        EmbeddingTable(
            name=f"t{number}",
            num_embeddings=200_000,
            embedding_dim=32,
            pooling_factor=1.0 + number % 7 * 4,
            min_shard_dim=16,
        )
        for number in range(90)
    )
    workload = replace(example_workload(1), tables=tables, local_batch_size=8192)
    return example_problem(workload, world_size=RANKS, num_nodes=2, fill=0.05)


def solved(programs: Programs) -> SolvedSet:
    found = programs.solve(TYPES)
    assert found is not None
    return found


def tried(others: float = np.inf, *, is_over: bool = False) -> tuple[float, int]:
    """Return the step of the best plan by levels, and how many were tried."""
    programs = Programs(Engine(problem()))
    search = LevelSearch(programs, TYPES, solved(programs), lambda: is_over)
    best = search.run(others)
    return np.inf if best is None else best[0], programs.evaluated


def test_the_best_levels_have_a_shorter_step_than_the_program_s_own() -> None:
    programs = Programs(Engine(problem()))
    own = programs.plan(TYPES, solved(programs))
    best, count = tried()
    assert best < 0.98 * own[0]
    assert 1 < count <= MOST


def test_mean_ranks_send_no_more_than_levels_and_the_step_is_that_of_the_fullest() -> None:
    programs = Programs(Engine(problem()))
    levels = programs.levels(TYPES, solved(programs))
    assert levels is not None
    assert set(levels.blocks.tolist()) <= {16.0, 32.0}
    up = np.ceil(levels.means / 32) * 32
    at_levels = [levels.at(up + more) for more in (0.0, 32.0, 64.0)]
    values = [relaxed.value for relaxed in at_levels if relaxed is not None]
    assert len(values) == 3
    assert values[0] < values[1] < values[2]  # fullest ranks send as much, whoever needs it
    full = levels.at(levels.means * 0.5)  # all columns have to go somewhere
    assert full is None
    again = levels.at(up)
    assert again is not None
    assert again.value == pytest.approx(values[0])  # whatever was asked before


def test_sets_far_behind_others_have_few_levels_tried() -> None:
    best, free = tried()
    behind, count = tried(best / 2)
    assert behind < np.inf
    assert 0 < count < free


def test_no_level_is_tried_once_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tried(is_over=True) == (np.inf, 0)
    monkeypatch.setattr(levels_module, "MOST", 3)
    assert 0 < tried()[1] <= 3
