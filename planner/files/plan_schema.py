"""The plan file as pydantic models; keys it does not name are left to reports, and ignored here."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from costmodel.base.limits import LONGEST_NAME, MOST_COLUMNS, MOST_RANKS, MOST_ROWS
from costmodel.domain.plan import ComputeKernel, ShardingType

Rows = Annotated[int, Field(ge=0, le=MOST_ROWS)]
Rank = Annotated[int, Field(ge=0, lt=MOST_RANKS)]
Ranks = Annotated[int, Field(ge=1, le=MOST_RANKS)]
Time = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Name = Annotated[str, Field(max_length=LONGEST_NAME)]


class _Open(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class ShardEntry(_Open):
    """A block of a table, and the rank that holds it."""

    rank: Rank
    row_offset: Rows
    num_rows: Rows
    """0 where a table has fewer rows than ranks."""
    column_offset: Annotated[int, Field(ge=0, le=MOST_COLUMNS)]
    num_columns: Annotated[int, Field(ge=1, le=MOST_COLUMNS)]


class TableEntry(_Open):
    """How one table is sharded."""

    name: Name
    sharding_type: Annotated[ShardingType, Field(strict=False)]
    compute_kernel: Annotated[ComputeKernel, Field(strict=False)]
    cache_load_factor: Annotated[float, Field(gt=0, le=1)] | None = None
    shards: Annotated[list[ShardEntry], Field(min_length=1)]


class CacheEntry(_Open):
    """A table's ``CacheParams``, but for its load factor."""

    algorithm: str | None = None
    reserved_memory: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    precision: str | None = None
    prefetch_pipeline: bool | None = None


class PlaceEntry(_Open):
    """Where in a TorchRec model a table lives, and what else its ``ParameterSharding`` says."""

    module: str
    table: str
    enforce_hbm: bool | None = None
    stochastic_rounding: bool | None = None
    bounds_check_mode: str | None = None
    output_dtype: str | None = None
    cache: CacheEntry | None = None


class TorchRecEntry(_Open):
    """What only a TorchRec plan needs."""

    device: str
    tables: dict[str, PlaceEntry]


class PlanDocument(_Open):
    """A plan and where it comes from, without the embedded workload."""

    hardware: str
    world_size: Ranks
    local_world_size: Ranks
    sharder: str | None = None
    seed: Seed | None = None
    step_time_s: Time | None = None
    torchrec: TorchRecEntry | None = None
    tables: list[TableEntry]
