"""Small workloads and plans made by hand, for tests of what one sharding type does."""

from collections.abc import Mapping
from dataclasses import replace

from machines import topology as make_topology

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import (
    ComputeKernel,
    ShardingPlan,
    ShardingType,
    TableSharding,
    make_shards,
)
from costmodel.domain.workload import (
    DenseModel,
    EmbeddingTable,
    Interaction,
    Pipeline,
    Pooling,
    Workload,
)
from costmodel.inputs.distribution import Zipf
from costmodel.step.graph import NodeKind
from costmodel.step.step_operations import Op, StepOperations
from costmodel.step.synthesis import step_operations
from sharders.problem.options import TableOption, make_plan, make_sharding
from sharders.problem.sharding_problem import ShardingProblem

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


MIXED: Mapping[str, tuple[tuple[ShardingType, tuple[int, ...]], ...]] = {
    "a": ((ShardingType.TABLE_WISE, (4,)), (ShardingType.TABLE_ROW_WISE, (3,))),
    "b": ((ShardingType.ROW_WISE, ()), (ShardingType.TABLE_WISE, (5,))),
    "c": ((ShardingType.GRID_SHARD, (0, 3)), (ShardingType.DATA_PARALLEL, ())),
    "d": ((ShardingType.TABLE_WISE, (1,)), (ShardingType.ROW_WISE, ())),
}
"""Two plans of four tables on two nodes of three ranks."""


def mixed(
    pipeline: Pipeline = Pipeline.SPARSE_DIST, local_batch_size: int = 16_384
) -> tuple[Workload, Topology, tuple[ShardingPlan, ShardingPlan]]:
    """Return unlike tables on two nodes of three ranks, and two plans that have all types."""
    work = workload(
        table("a", dim=128), table("b", ids=40.0), table("c", weighted=True),
        table("d", pooling=Pooling.NONE, ids=3.0), pipeline=pipeline,
    )  # fmt: skip
    work, ranks = replace(work, local_batch_size=local_batch_size), make_topology(6, 3)
    both = (plan(work, ranks, {name: pair[at] for name, pair in MIXED.items()}) for at in (0, 1))
    return work, ranks, (next(both), next(both))


def collectives(made: StepOperations) -> list[Op]:
    return [op for op in made.ops if op.kind is NodeKind.COLLECTIVE]


def named(made: StepOperations, *names: str) -> list[Op]:
    """Return the operations of these names, in the order of the program."""
    return [op for op in made.ops if op.name in names]


def index(made: StepOperations, name: str) -> int:
    """Return where the operation of that name is in the program."""
    (at,) = (i for i, op in enumerate(made.ops) if op.name == name)
    return at


def placed(problem: ShardingProblem, *ranks: int) -> ShardingPlan:
    """Return the plan of whole tables, each on its rank."""
    whole = TableOption(sharding_type=ShardingType.TABLE_WISE)
    tables = zip(problem.workload.tables, ranks, strict=True)
    return make_plan(
        problem.topology,
        [make_sharding(table, problem.topology, whole, (rank,)) for table, rank in tables],
    )
