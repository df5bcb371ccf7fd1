"""A population of sharding problems: realistic ones and nasty ones, drawn by number.

A search that is tuned on the instances it is judged by says nothing of others. So instances are
drawn: ``tuning-0`` to ``tuning-159`` are for changing the search by, ``held-out-0`` to
``held-out-29`` only for judging it, and the four of ``uneven-*`` are those on which seeds differed
first. Everything is drawn from the instance's name, and the same on every machine.

What is drawn is our choice, from the ranges that published models and workloads have: rows around
400 thousand (log-normal), widths 16 to 256, pooling factors from 1 to 300 with a heavy tail, reuse
by Zipf's law of 0.6 to 1.3, 20 to 1,000 tables on 2 to 128 GPUs of any profile, 1 to 16 nodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import exp, log
from random import Random

from bench.plan_quality import filled
from costmodel.domain.hardware import Device, Topology
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import (
    DataType,
    DenseModel,
    EmbeddingTable,
    Interaction,
    Pipeline,
    Pooling,
    Workload,
)
from costmodel.inputs.distribution import Zipf
from costmodel.memory.rank_memory import usable_bytes, whole_table_bytes
from planner.files.profiles import load_profile
from sharders.problem.sharding_problem import ShardingProblem

NUM_TUNING, NUM_HELD_OUT = 160, 30
GPUS = (
    "a100-sxm-40gb", "a100-sxm-80gb", "b200-sxm", "gb200-nvl72", "h100-hbm2e", "h100-sxm",
    "h200-sxm", "l40s-pcie", "mi300x", "v100-nvlink",
)  # fmt: skip
CPU = "cpu-gloo"
CPU_SHARE = 0.04
"""Share of the instances on CPUs: few are, and their collectives outweigh every plan."""
CPU_FILL = 0.6
"""Share of their memory that tables take at most: it is what a core has, not a choice of ours."""
NODES = (1, 1, 1, 2, 2, 4, 8, 16)
WIDTHS = (16, 32, 64, 96, 128, 192, 256)
MEDIAN_ROWS, ROWS_SPREAD, MOST_ROWS = 400_000, (1.2, 2.4), 200_000_000
MOST_POOLING = 300.0
MOST_TABLE_SHARE = 0.5
"""Share of the instance's memory that one table takes at most: larger ones fit no GPU at all."""


class Nature(StrEnum):
    """What an instance is made to try."""

    REALISTIC = "realistic"
    """Memory of the GPU itself, few tables with long bags."""
    UNEVEN = "uneven"
    """Widths, rows and pooling factors as uneven as they come."""
    TIGHT = "tight"
    """Tables fill nine tenths of the memory for them."""
    BARELY = "barely feasible"
    """Tables fill 97 to 99% of it."""
    TIERS = "UVM tiers"
    """Tables need more than all HBM, and may lie in host memory, some of it cached."""
    CONSTRAINED = "constrained"
    """Tables allow few sharding types, or are to be on certain ranks."""
    SHARED = "shared"
    """Many features read one table; some weighted, some unpooled, some of 16 bits."""
    LAUNCHES = "launches"
    """Small batches and many tables: launches outweigh lookups."""


class Drawing:
    """What is drawn for one instance, by its name."""

    def __init__(self, name: str) -> None:
        self.rng = Random(f"sharding problem {name}")  # noqa: S311 - a drawing

    def between(self, low: float, high: float) -> float:
        """Draw a number, its logarithm uniformly."""
        return exp(self.rng.uniform(log(low), log(high)))

    def happens(self, share: float) -> bool:
        """Draw whether something happens that does so in a share of the cases."""
        return self.rng.random() < share


@dataclass(frozen=True, slots=True)
class PopulationInstance:
    """One problem: its name says everything, but for what is given here instead of being drawn."""

    name: str
    nature: Nature | None = None
    """None: drawn, as all that follows."""
    num_tables: int | None = None
    hardware: str | None = None
    num_nodes: int | None = None
    local_batch_size: int | None = None

    def problem(self) -> ShardingProblem:
        """Draw the problem, always the same."""
        draw = Drawing(self.name)
        nature = draw.rng.choice(list(Nature))
        nature = self.nature or nature
        topology = _topology(draw, self.hardware, self.num_nodes)
        most = 200 if topology.hardware.device is Device.CPU else 1000
        drawn = int(draw.between(20, most)), 2 ** draw.rng.randint(8, 14)
        count = self.num_tables or drawn[0]
        batch = self.local_batch_size or (drawn[1] // 8 if nature is Nature.LAUNCHES else drawn[1])
        workload = Workload(
            name=self.name,
            tables=_tables(draw, nature, count, topology),
            dense=DenseModel(interaction=Interaction.CAT),
            local_batch_size=max(64, batch),
            pipeline=Pipeline.NONE if draw.happens(0.2) else Pipeline.SPARSE_DIST,
            comms_forward=DataType.FP16 if draw.happens(0.3) else None,
        )
        workload, topology = _with_memory(draw, nature, workload, topology)
        return ShardingProblem.of(workload, topology)


def _topology(draw: Drawing, hardware: str | None, num_nodes: int | None) -> Topology:
    name = CPU if draw.happens(CPU_SHARE) else draw.rng.choice(GPUS)
    nodes, local = draw.rng.choice(NODES), 8
    name, nodes = hardware or name, num_nodes or nodes
    if name == CPU:
        nodes = 1
    if nodes == 1:
        local = draw.rng.choice((2, 4, 8))
    return Topology(hardware=load_profile(name), world_size=nodes * local, local_world_size=local)


def _tables(
    draw: Drawing, nature: Nature, count: int, topology: Topology
) -> tuple[EmbeddingTable, ...]:
    uneven = nature is Nature.UNEVEN or draw.happens(0.3)
    widths = WIDTHS if uneven or draw.happens(0.5) else (draw.rng.choice((32, 64, 128)),)
    spread = ROWS_SPREAD[1] if uneven else draw.rng.uniform(*ROWS_SPREAD)
    tail = 0.9 if uneven else draw.rng.uniform(1.2, 2.0)
    exponents = (0.6, 1.3) if uneven else (0.9, 1.2)
    tables = []
    for number in range(count):
        rows = exp(log(MEDIAN_ROWS) + spread * draw.rng.gauss(0.0, 1.0))
        table = EmbeddingTable(
            name=f"t{number}",
            num_embeddings=int(min(MOST_ROWS, max(10.0, rows))),
            embedding_dim=draw.rng.choice(widths),
            pooling_factor=min(MOST_POOLING, draw.rng.paretovariate(tail)),
            inputs=Zipf(exponent=draw.rng.uniform(*exponents)),
        )
        tables.append(_special(draw, nature, table, topology))
    return tuple(tables)


def _special(
    draw: Drawing, nature: Nature, table: EmbeddingTable, topology: Topology
) -> EmbeddingTable:
    """Return a table as the instance's nature has it."""
    gpu = topology.hardware.device is Device.CUDA
    if nature is Nature.TIERS and gpu:
        kernels = ComputeKernel.FUSED, ComputeKernel.FUSED_UVM, ComputeKernel.FUSED_UVM_CACHING
        return replace(table, compute_kernels=kernels)
    if nature is Nature.SHARED:
        features = draw.rng.choice((1, 1, 1, 2, 5, 12))
        return replace(
            table,
            feature_names=tuple(f"{table.name}_{number}" for number in range(features)),
            pooling_factor=min(MOST_POOLING, table.pooling_factor * features),
            weighted=draw.happens(0.1),
            pooling=Pooling.NONE if draw.happens(0.03) else Pooling.SUM,
            data_type=DataType.FP16 if draw.happens(0.3) else DataType.FP32,
        )
    if nature is Nature.CONSTRAINED:
        return _constrained(draw, table, topology)
    return table


def _constrained(draw: Drawing, table: EmbeddingTable, topology: Topology) -> EmbeddingTable:
    kind = draw.rng.random()
    if kind < 0.3:
        others = draw.rng.sample(list(ShardingType), 2)
        types = dict.fromkeys([*others, ShardingType.TABLE_WISE])
        return replace(table, sharding_types=tuple(types))
    if kind < 0.4:
        rank = draw.rng.randrange(topology.world_size)
        return replace(table, ranks=(rank,), sharding_types=(ShardingType.TABLE_WISE,))
    if kind < 0.7:
        return replace(table, min_shard_dim=min(64, table.embedding_dim))
    return table


def _with_memory(
    draw: Drawing, nature: Nature, workload: Workload, topology: Topology
) -> tuple[Workload, Topology]:
    """Return tables cut to what can be placed at all, and GPUs with memory as the nature says."""
    share = {
        Nature.TIGHT: 0.9,
        Nature.BARELY: draw.rng.uniform(0.97, 0.99),
        Nature.TIERS: draw.rng.uniform(1.2, 1.6),
        Nature.CONSTRAINED: 0.7,
    }.get(nature)
    room = topology.world_size * usable_bytes(workload, topology)
    sizes = [whole_table_bytes(workload, topology, table) for table in workload.tables]
    if share is None:
        share = 0.8 if sum(sizes) > 0.8 * room else None
    if topology.hardware.device is Device.CPU:
        return _thinned(workload, min(1.0, CPU_FILL * room / sum(sizes))), topology
    if share is None:
        return workload, topology
    most = MOST_TABLE_SHARE * sum(sizes) / (max(1.0, share) * topology.world_size)
    tables = tuple(
        replace(table, num_embeddings=max(10, int(table.num_embeddings * most / size)))
        if size > most and (table.ranks or nature is Nature.BARELY)
        else table
        for table, size in zip(workload.tables, sizes, strict=True)
    )
    workload = replace(workload, tables=tables)
    return workload, filled(workload, topology, share)


def _thinned(workload: Workload, share: float) -> Workload:
    """Return tables of fewer rows."""
    tables = (
        replace(table, num_embeddings=max(10, int(share * table.num_embeddings)))
        for table in workload.tables
    )
    return replace(workload, tables=tuple(tables))


UNEVEN: Sequence[PopulationInstance] = (
    PopulationInstance("uneven-60x16", Nature.UNEVEN, 60, "h100-sxm", 2, 4096),
    PopulationInstance("uneven-200x32", Nature.UNEVEN, 200, "a100-sxm-80gb", 4, 1024),
    PopulationInstance("uneven-200x32b", Nature.UNEVEN, 200, "a100-sxm-80gb", 4, 1024),
    PopulationInstance("uneven-500x64", Nature.UNEVEN, 500, "h200-sxm", 8, 2048),
)
TUNING = tuple(PopulationInstance(f"tuning-{number}") for number in range(NUM_TUNING))
HELD_OUT = tuple(PopulationInstance(f"held-out-{number}") for number in range(NUM_HELD_OUT))
POPULATION: Mapping[str, PopulationInstance] = {
    instance.name: instance for instance in (*UNEVEN, *TUNING, *HELD_OUT)
}
