import pytest
from machines import topology

from costmodel.domain.workload import DenseModel, EmbeddingTable, Workload
from sharders.problem.sharding_problem import ShardingProblem


@pytest.fixture
def problem() -> ShardingProblem:
    tables = tuple(
        EmbeddingTable(name=f"t{i}", num_embeddings=1000 * (i + 1), embedding_dim=16)
        for i in range(4)
    )
    dense = DenseModel(bottom_mlp=(16,), top_mlp=(8, 1))
    workload = Workload(tables=tables, dense=dense, local_batch_size=256)
    machine = topology(2)
    return ShardingProblem.of(workload, machine)
