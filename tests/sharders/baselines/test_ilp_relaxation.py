"""The program without ranks beside the same one, written for another solver."""

import numpy as np
import pytest
from machines import machine, topology

from costmodel.base.units import GIB
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload
from sharders.baselines.ilp_model import IlpModel
from sharders.baselines.ilp_relaxation import HEADROOM, option_shares
from sharders.baselines.solvers import Limits
from sharders.problem.sharding_problem import ShardingProblem

optimize = pytest.importorskip("scipy.optimize", reason="scipy is not installed")


def problem_of(memory: float) -> ShardingProblem:
    tables = tuple(
        EmbeddingTable(
            name=name,
            num_embeddings=rows,
            embedding_dim=8,
            pooling_factor=pooling,
            compute_kernels=(ComputeKernel.FUSED, ComputeKernel.FUSED_UVM),
            sharding_types=(ShardingType.TABLE_WISE, ShardingType.ROW_WISE),
        )
        for name, rows, pooling in (("a", 3_000_000, 50.0), ("b", 5_000_000, 7.0), ("c", 900, 3.0))
    )
    ranks = topology(3, 3, machine(memory=memory * GIB))
    return ShardingProblem.of(Workload(tables=tables), ranks)


@pytest.mark.parametrize("memory", [80.0, 0.21])
def test_the_mean_rank_is_done_as_soon_as_another_solver_says(memory: float) -> None:
    model = IlpModel(problem_of(memory))
    topology, capacity = model.problem.topology, model.problem.total_capacity
    flat = [(t, each) for t, some in enumerate(model.candidates) for each in some]
    shard = np.array([each.cost.shard_load for _, each in flat])
    total = np.array([each.cost.total_load for _, each in flat])
    held = np.array([each.bytes_per_shard * each.option.num_shards(topology) for _, each in flat])
    of_table = np.array([[t == number for t, _ in flat] for number in range(3)], dtype=float)
    # the last variable is M, in units of the largest load
    unit = total.max()
    rows = [*(of_table * shard / unit), total / unit / 3, held / (HEADROOM * capacity)]
    upper = np.column_stack([rows, [-1.0] * 4 + [0.0]])
    found = optimize.linprog(
        [0.0] * len(flat) + [1.0], A_ub=upper, b_ub=[0.0] * 4 + [1.0],
        A_eq=np.column_stack([of_table, [0.0] * 3]), b_eq=[1.0] * 3,
    )  # fmt: skip
    shares = option_shares(model, Limits())
    x = np.concatenate(shares)
    assert [sum(some) for some in shares] == pytest.approx([1.0] * 3)
    assert (of_table @ (x * shard)).max() <= found.fun * unit * (1 + 1e-6)
    assert x @ total / 3 <= found.fun * unit * (1 + 1e-6)
    assert x @ held <= HEADROOM * capacity * (1 + 1e-6)
    assert (x @ held > 0.999 * HEADROOM * capacity) == (
        memory < 1
    )  # the bound is met where it is low
