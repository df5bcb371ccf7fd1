"""Small workloads and plans made by hand, for tests of what one sharding type does."""

from collections.abc import Mapping

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import (
    ComputeKernel,
    ShardingPlan,
    ShardingType,
    TableSharding,
    make_shards,
)
from costmodel.domain.workload import DenseModel, EmbeddingTable, Interaction, Workload
from costmodel.inputs.distribution import Zipf
from costmodel.step.graph import NodeKind
from costmodel.step.step_operations import Op, StepOperations
from costmodel.step.synthesis import step_operations

UNIFORM = Zipf(exponent=0.0)
BATCH = 256


def table(name: str = "t", *, dim: int = 64, ids: float = 10.0, **more: object) -> EmbeddingTable:
    return EmbeddingTable(
        name=name, num_embeddings=8000, embedding_dim=dim, pooling_factor=ids, inputs=UNIFORM,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def workload(*tables: EmbeddingTable, **more: object) -> Workload:
    dense = DenseModel(bottom_mlp=(64, 32), top_mlp=(64, 1), interaction=Interaction.CAT)
    return Workload(tables=tables, dense=dense, local_batch_size=BATCH, **more)  # type: ignore[arg-type]


def sharding(
    one: EmbeddingTable, kind: ShardingType, ranks: tuple[int, ...], topology: Topology
) -> TableSharding:
    dense = kind is ShardingType.DATA_PARALLEL
    return TableSharding(
        table=one.name,
        sharding_type=kind,
        compute_kernel=ComputeKernel.DENSE if dense else ComputeKernel.FUSED,
        shards=make_shards(
            kind,
            one.num_embeddings,
            one.embedding_dim,
            ranks=ranks,
            world_size=topology.world_size,
            local_world_size=topology.local_world_size,
        ),
    )


def plan(
    work: Workload, topology: Topology, how: Mapping[str, tuple[ShardingType, tuple[int, ...]]]
) -> ShardingPlan:
    return ShardingPlan(
        tables=tuple(sharding(one, *how[one.name], topology) for one in work.tables),
        world_size=topology.world_size,
        local_world_size=topology.local_world_size,
    )


def step(work: Workload, topology: Topology, kind: ShardingType, *ranks: int) -> StepOperations:
    """Return the step of a workload whose tables are all sharded alike."""
    how = {one.name: (kind, ranks) for one in work.tables}
    return step_operations(work, topology, plan(work, topology, how))


def collectives(made: StepOperations) -> list[Op]:
    return [op for op in made.ops if op.kind is NodeKind.COLLECTIVE]


def named(made: StepOperations, *names: str) -> list[Op]:
    """Return the operations of these names, in the order of the program."""
    return [op for op in made.ops if op.name in names]


def index(made: StepOperations, name: str) -> int:
    """Return where the operation of that name is in the program."""
    (at,) = (i for i, op in enumerate(made.ops) if op.name == name)
    return at
