"""The plan file as pydantic models; keys it does not name are left to reports, and ignored here."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from costmodel.base.limits import (
    LONGEST_NAME,
    MOST_BYTES,
    MOST_COLUMNS,
    MOST_INTERVAL,
    MOST_RANKS,
    MOST_ROWS,
)
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.replica_groups import ShardingStrategy
from planner.files.workload_schema import WorkloadFile

Rows = Annotated[int, Field(ge=0, le=MOST_ROWS)]
Rank = Annotated[int, Field(ge=0, lt=MOST_RANKS)]
Ranks = Annotated[int, Field(ge=1, le=MOST_RANKS)]
Time = Annotated[float, Field(ge=1e-9, le=1e9, allow_inf_nan=False)]
"""A step's time: from a nanosecond to decades. What divides by it is finite."""
Size = Annotated[float, Field(ge=0, le=MOST_BYTES, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Name = Annotated[str, Field(max_length=LONGEST_NAME)]


class _Open(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, use_attribute_docstrings=True)


class ShardEntry(_Open):
    """A block of a table, and the rank that holds it."""

    rank: Rank
    """The rank (GPU, from 0) that holds it."""
    num_ranks: Ranks = 1
    """With data_parallel: so many ranks, from `rank` on, hold a copy of it, and it is the only one
    of the table's shards that is listed."""
    row_offset: Rows
    """Its first row."""
    num_rows: Rows
    """0 where a table has fewer rows than ranks."""
    column_offset: Annotated[int, Field(ge=0, le=MOST_COLUMNS)]
    """Its first column."""
    num_columns: Annotated[int, Field(ge=1, le=MOST_COLUMNS)]
    """How many columns it has."""


class TableEntry(_Open):
    """How one table is sharded."""

    name: Name
    """The table, as the workload calls it."""
    sharding_type: Annotated[ShardingType, Field(strict=False)]
    """How it is split over ranks, by TorchRec's names."""
    compute_kernel: Annotated[ComputeKernel, Field(strict=False)]
    """Where its rows live and which kernel reads them, by TorchRec's names."""
    cache_load_factor: Annotated[float, Field(gt=0, le=1)] | None = None
    """With fused_uvm_caching: the share of its rows that HBM caches."""
    shards: Annotated[list[ShardEntry], Field(min_length=1)]
    """Its blocks, which cover it exactly; with data_parallel, one whole copy per rank, in order, or
    one with `num_ranks`."""


class CacheEntry(_Open):
    """A table's ``CacheParams``, but for its load factor."""

    algorithm: str | None = None
    reserved_memory: Size | None = None
    precision: str | None = None
    prefetch_pipeline: bool | None = None


class PlaceEntry(_Open):
    """Where in a TorchRec model a table lives, and what else its ``ParameterSharding`` says."""

    module: str
    """Path of the embedding module in the model."""
    table: str
    """The table's name in that module."""
    enforce_hbm: bool | None = None
    stochastic_rounding: bool | None = None
    bounds_check_mode: str | None = None
    output_dtype: str | None = None
    cache: CacheEntry | None = None


class TorchRecEntry(_Open):
    """What only a TorchRec plan needs."""

    device: str
    """Where the job runs: `cuda` or `cpu`."""
    local_world_size: Ranks | None = None
    """GPUs of a host, where the plan's nodes are NVLink domains of several hosts."""
    left_out: list[str] | None = None
    """Tables of the model that no cost model knows, by module path and table: not in this file."""
    tables: dict[str, PlaceEntry]
    """By the table's name in this file."""


class MemoryEntry(_Open):
    """The memory that a plan was made under, as a cap or a reservation left it."""

    rank_bytes: Size
    """HBM of a rank (memory, on a CPU); where ranks differ, of the one that has most."""
    host_bytes: Size
    """Memory of a node's host."""
    withheld_bytes: tuple[Size, ...] = Field(default=(), strict=False, max_length=MOST_RANKS)
    """What each rank lacks of `rank_bytes`; empty: nothing."""


class ReplicasEntry(_Open):
    """The groups of ranks that each hold all tables, of which the plan is one's."""

    num_groups: Annotated[int, Field(ge=2, le=MOST_RANKS)]
    """How many there are: `world_size` is the number of ranks of one."""
    ranks_per_node: Ranks
    """Ranks of the job on a node, of all groups."""
    use_inter_host_allreduce: bool = False
    """Whether a group has consecutive ranks; else it has every `num_groups`-th."""
    sync_interval: Annotated[int, Field(ge=1, le=MOST_INTERVAL)] = 1
    """Steps from one averaging of the groups' replicas to the next."""
    sharding_strategy: Annotated[ShardingStrategy, Field(strict=False)] = ShardingStrategy.DEFAULT
    """Which collectives average them, by TorchRec's names."""


class PlanDocument(_Open):
    """A plan and where it comes from, without the embedded workload."""

    hardware: str
    """Name or path of the hardware profile that the step is predicted with; a file that is not
    there is looked for beside the plan."""
    world_size: Ranks
    """Ranks (GPUs) in all."""
    local_world_size: Ranks
    """Ranks per node."""
    replicas: ReplicasEntry | None = None
    """Where several groups of ranks each hold all tables: how many, and where. The plan's ranks are
    those of one group."""
    sharder: str | None = None
    """Who found the plan."""
    seed: Seed | None = None
    """Where the search started."""
    step_time_s: Time | None = None
    """The step that was expected when the plan was made."""
    memory: MemoryEntry | None = None
    """The memory that it was made under, where not the profile's; plans are judged by it."""
    torchrec: TorchRecEntry | None = None
    """What only a TorchRec plan needs; `planner plan --from-torchrec` writes it."""
    tables: list[TableEntry]
    """Every table of the workload, and how it is sharded."""


class WholePlanFile(PlanDocument):
    """A plan, where it comes from, and the workload that it is for."""

    workload: WorkloadFile
    """The workload, with everything its own file may have."""
