"""Hypothesis strategies: workloads, topologies, and valid plans of every kind."""

from dataclasses import replace
from typing import TypeAlias

from hypothesis import strategies as st
from machines import machine
from table_options import table_options

from costmodel.domain.hardware import Device, Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.replica_groups import ReplicaGroups
from costmodel.domain.time_correction import NO_CORRECTION, TimeCorrection
from costmodel.domain.workload import (
    DataType,
    DenseModel,
    EmbeddingTable,
    Interaction,
    Optimizer,
    Pipeline,
    Pooling,
    Workload,
)
from costmodel.inputs.distribution import Zipf
from sharders.problem.options import make_plan, make_sharding

Case: TypeAlias = tuple[Workload, Topology, ShardingPlan]
"""What ``cases`` draws."""


@st.composite
def tables(
    draw: st.DrawFn,
    index: int,
    *,
    pooled: bool = False,
    even: bool = False,
    stashed: bool = False,
) -> EmbeddingTable:
    """Draw a table; an even one has equal blocks of equally popular rows on any of the ranks."""
    pooling = Pooling.SUM if pooled else draw(st.sampled_from(Pooling))
    return EmbeddingTable(
        name=f"table_{index}",
        num_embeddings=draw(st.sampled_from([*([] if even else [3]), 100, 5_000, 1_000_000])),
        embedding_dim=draw(st.sampled_from([4, 16, 64, 128, 320])),
        pooling_factor=draw(st.sampled_from([0.5, 1.0, 20.0])),
        pooling_std=draw(st.sampled_from([0.0, 30.0])),
        longest_bag=draw(st.sampled_from([0.0, 0.0, 500.0])),
        bags_per_sample=draw(st.sampled_from([1.0, 1.0, 0.25])),
        data_type=draw(st.sampled_from([DataType.FP32, DataType.FP16])),
        pooling=pooling,
        weighted=pooling is Pooling.SUM and draw(st.booleans()),
        optimizer=draw(st.sampled_from([None, None, Optimizer.ADAM])),
        stash_weights=stashed and draw(st.booleans()),
        inputs=Zipf(
            exponent=draw(st.sampled_from([0.0, 1.05])),
            hot_rows_first=not even and draw(st.booleans()),
        ),
    )


@st.composite
def workloads(
    draw: st.DrawFn,
    *,
    pipelines: tuple[Pipeline, ...] = tuple(Pipeline),
    min_tables: int = 1,
    max_tables: int = 5,
    even: bool = False,
) -> Workload:
    pipeline = draw(st.sampled_from(pipelines))
    count = draw(st.integers(min_tables, max_tables))
    pooled = pipeline is Pipeline.DLRM
    stashed = pipeline is Pipeline.SPARSE_DIST and draw(st.booleans())
    return Workload(
        tables=tuple(
            draw(tables(i, pooled=pooled, even=even, stashed=stashed)) for i in range(count)
        ),
        dense=DenseModel(
            bottom_mlp=(64, 32),
            top_mlp=(64, 1),
            interaction=draw(st.sampled_from([Interaction.CAT, Interaction.DCN_V2])),
        ),
        local_batch_size=draw(st.sampled_from([64, 1024])),
        pipeline=pipeline,
        gradient_accumulation_steps=draw(st.sampled_from([1, 1, 1, 2])),
        optimizer=draw(st.sampled_from(Optimizer)),
        length_spread=draw(st.sampled_from([None, 0.1])),
        comms_forward=draw(st.sampled_from([None, DataType.FP16])),
        restore_site=draw(st.sampled_from([None, 0, 1])) if stashed else None,
    )


corrections = st.sampled_from([
    NO_CORRECTION,
    TimeCorrection(((3e-6, 1e-6), (1e-5, 1.5e-5), (1e-4, 4e-5))),
    TimeCorrection(((1e-5, 3e-5), (1e-3, 2e-3))),
])
"""Of kernels: none, one that lengthens some and shortens others, one that lengthens all."""


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    nodes, local = draw(st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 2), (2, 1)]))
    hardware = machine(device=draw(st.sampled_from(Device)))
    forward, backward, stream = draw(st.tuples(corrections, corrections, corrections))
    gpu = replace(
        hardware.gpu, forward_correction=forward, backward_correction=backward,
        stream_correction=stream,
    )  # fmt: skip
    hardware = replace(hardware, gpu=gpu)
    replicas = None
    if nodes * local > 1 and draw(st.booleans()):
        replicas = draw(replica_groups(local))
    return Topology(
        hardware=hardware, world_size=nodes * local, local_world_size=local, replicas=replicas
    )


@st.composite
def replica_groups(draw: st.DrawFn, local: int) -> ReplicaGroups:
    """Draw two groups that each have ``local`` ranks on a node, spread or of consecutive ranks."""
    consecutive = draw(st.booleans())
    return ReplicaGroups(
        num_groups=2,
        ranks_per_node=local if consecutive else 2 * local,
        use_inter_host_allreduce=consecutive,
        sync_interval=draw(st.sampled_from([1, 7])),
    )


@st.composite
def plans(draw: st.DrawFn, workload: Workload, topology: Topology) -> ShardingPlan:
    shardings = []
    for table in workload.tables:
        option = draw(st.sampled_from(table_options(workload, topology, table)))
        local = topology.local_world_size
        if option.sharding_type.within_node:
            places = draw(st.permutations(range(topology.num_nodes)))
            ranks = [node * local for node in places[: option.num_ranks]]
        elif option.sharding_type.value == "table_column_wise":
            node = draw(st.integers(0, topology.num_nodes - 1))
            mates = draw(st.permutations(range(node * local, (node + 1) * local)))
            ranks = list(mates[: option.num_ranks])
        else:
            ranks = list(draw(st.permutations(range(topology.world_size)))[: option.num_ranks])
        shardings.append(make_sharding(table, topology, option, ranks))
    return make_plan(topology, shardings)


@st.composite
def fixed_cases(draw: st.DrawFn) -> Case:
    """Draw a case in which some tables are where the user wants them."""
    workload, topology, plan = draw(cases())
    tables = tuple(
        replace(table, ranks=tuple(dict.fromkeys(plan.table(table.name).ranks)))
        if draw(st.booleans())
        else table
        for table in workload.tables
    )
    return replace(workload, tables=tables), topology, plan


@st.composite
def cases(draw: st.DrawFn, *, min_tables: int = 1, even: bool = False) -> Case:
    topology = draw(topologies())
    workload = draw(workloads(min_tables=min_tables, even=even))
    return workload, topology, draw(plans(workload, topology))
