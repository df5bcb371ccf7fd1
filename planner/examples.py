"""Made-up machines, workloads and problems, for tests and benches.

Nothing but the product's own dependencies is needed here; ``planner.testing`` adds pytest.
"""

from random import Random

from costmodel.base.units import GB, GIB, MIB, TFLOP, US, Bytes
from costmodel.domain.hardware import GemmEfficiency, Gpu, HardwareProfile, Host, Link, Topology
from costmodel.domain.workload import EmbeddingTable, Pipeline, Pooling, Workload
from costmodel.inputs.distribution import Zipf
from costmodel.memory.rank_memory import usable_bytes, whole_table_bytes
from costmodel.memory.storage import RESERVE_SHARE
from sharders.problem.sharding_problem import ShardingProblem


def example_hardware(memory_bytes: Bytes = 80 * GIB) -> HardwareProfile:
    """Return a made-up machine of eight GPUs a node."""
    gpu = Gpu(
        name="example",
        memory_bytes=memory_bytes,
        memory_bandwidth=2000 * GB,
        l2_bytes=40 * MIB,
        l2_bandwidth=5000 * GB,
        num_sms=100,
        kernel_latency=3 * US,
        lookup_efficiency=0.8,
        update_efficiency=0.6,
        sort_rate=5e9,
        gemm={
            "fp32": GemmEfficiency(
                peak=20 * TFLOP,
                max_efficiency=0.8,
                tile_efficiency=(1.0, 0.9, 0.7, 0.4),
                prologue_depth=64,
                split_time=2 * US,
                l2_efficiency=0.8,
                memory_efficiency=0.8,
                latency=4 * US,
            )
        },
    )
    host = Host(
        memory_bytes=1024 * GIB,
        pcie_bandwidth=25 * GB,
        uvm_bandwidth=20 * GB,
        launch_time=5 * US,
        launch_latency=5 * US,
        op_time=10 * US,
        backward_op_time=10 * US,
        sync_time=10 * US,
    )
    return HardwareProfile(
        name="example",
        gpu=gpu,
        host=host,
        gpus_per_node=8,
        curves=(),
        intra_node=Link(latency=10 * US, bandwidth=200 * GB),
        inter_node=Link(latency=20 * US, bandwidth=20 * GB),
        sources={},
    )


def example_workload(
    num_tables: int = 20, *, seed: int = 0, pipeline: Pipeline = Pipeline.SPARSE_DIST
) -> Workload:
    """Return tables of widely different sizes; some are unpooled, weighted or shared."""
    rng = Random(seed)
    tables = tuple(
        EmbeddingTable(
            name=f"table_{index}",
            num_embeddings=round(10 ** rng.uniform(2, 6.7)),
            embedding_dim=rng.choice((16, 32, 64, 128)),
            pooling_factor=round(rng.lognormvariate(1, 1), 2) + 0.1,
            feature_names=("a", "b") if index % 7 == 5 else (),
            pooling=Pooling.NONE if index % 9 == 8 else Pooling.SUM,
            weighted=index % 5 == 4,
            inputs=Zipf(exponent=1.05),
        )
        for index in range(num_tables)
    )
    return Workload(tables=tables, local_batch_size=512, pipeline=pipeline)


def example_problem(
    workload: Workload, *, world_size: int = 4, num_nodes: int = 1, fill: float = 0.3
) -> ShardingProblem:
    """Return the problem of sharding tables that take a share ``fill`` of all GPUs' memory."""
    hardware = example_hardware()
    topology = Topology(
        hardware=hardware, world_size=world_size, local_world_size=world_size // num_nodes
    )
    needed = sum(whole_table_bytes(workload, topology, table) for table in workload.tables)
    taken = hardware.gpu.memory_bytes - usable_bytes(workload, topology) / (1 - RESERVE_SHARE)
    sized = example_hardware(needed / (world_size * fill) / (1 - RESERVE_SHARE) + taken)
    filled = Topology(
        hardware=sized, world_size=world_size, local_world_size=world_size // num_nodes
    )
    return ShardingProblem.of(workload, filled)
