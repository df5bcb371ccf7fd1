"""The workload file as pydantic models: names, types, units and defaults, for reading and for docs.

Rules about values (a dimension is a multiple of 4, a share lies in (0, 1]) live in the domain
classes of ``costmodel``; only what those cannot know is said here. Defaults are theirs too.
Schemas have what of these rules they can say: ``json_schema_extra`` is not checked in reading.
"""

import dataclasses
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from costmodel.base import limits
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import (
    DataType,
    DenseModel,
    EmbeddingTable,
    Interaction,
    LaunchMode,
    Optimizer,
    OptimizerImplementation,
    Pipeline,
    Pooling,
    Workload,
)
from costmodel.inputs.distribution import Zipf
from planner.files.dense_schema import DenseFile


def _defaults(domain_class: type) -> dict[str, Any]:
    return {
        field.name: list(field.default) if isinstance(field.default, tuple) else field.default
        for field in dataclasses.fields(domain_class)
        if field.default is not dataclasses.MISSING
    }


_TABLE = _defaults(EmbeddingTable)
_DENSE = _defaults(DenseModel)
_WORKLOAD = _defaults(Workload)

Int64 = Annotated[int, Field(le=2**63 - 1)]
"""What PyTorch can count to."""


def stated(**bounds: JsonValue) -> Any:  # noqa: ANN401 - what Annotated takes
    """Return what a schema says of a field, and a class of the domain checks."""
    return Field(json_schema_extra=bounds)


Width = Annotated[Int64, stated(minimum=1, maximum=limits.MOST_WIDTH)]
Rank = Annotated[Int64, stated(minimum=0, maximum=limits.MOST_RANKS - 1)]
Name = Annotated[str, stated(minLength=1, maxLength=limits.LONGEST_NAME)]
Share = Annotated[float, stated(minimum=0, maximum=limits.MOST_SHARE)]
Bins = Annotated[list[Share], stated(maxItems=limits.MOST_BINS)]
Ranges = Annotated[list[Share], stated(maxItems=limits.MOST_RANGES)]
Ids = Annotated[float, stated(minimum=0, maximum=limits.MOST_IDS)]
SomeIds = Annotated[float, stated(exclusiveMinimum=0, maximum=limits.MOST_IDS)]
Columns = Annotated[Int64, stated(minimum=4, multipleOf=4, maximum=limits.MOST_COLUMNS)]
Parameters = Annotated[Int64, stated(minimum=0, maximum=limits.MOST_PARAMETERS)]
SomeShare = Annotated[float | None, stated(exclusiveMinimum=0, maximum=1)]
Features = Annotated[list[str], stated(maxItems=limits.MOST_FEATURES)]
TopLayers = Annotated[list[Width], stated(minItems=1, maxItems=limits.MOST_LAYERS)]
Layers = Annotated[list[Width], stated(maxItems=limits.MOST_LAYERS)]
Products = Annotated[float, stated(minimum=0, maximum=limits.MOST_PRODUCTS)]
Samples = Annotated[Int64, stated(minimum=1, maximum=limits.MOST_SAMPLES)]
Batches = Annotated[Int64, stated(minimum=1, maximum=limits.MOST_ACCUMULATED)]
Spread = Annotated[float | None, stated(minimum=0, maximum=1)]
Layer = Annotated[Int64 | None, stated(minimum=0, maximum=limits.MOST_LAYERS - 1)]


class _WorkloadSection(BaseModel):
    """No coercion (the text ``"1e6"`` is not a number) and no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


def _spelled_out(inputs: object) -> object:
    """Return inputs with the word ``uniform`` spelled out as a Zipf law."""
    return {"zipf": 0.0} if inputs == "uniform" else inputs


class Inputs(_WorkloadSection):
    """Which rows a batch hits: exactly one of zipf, reuse_histogram and unique_fraction."""

    zipf: Annotated[float | None, stated(minimum=0, maximum=5)] = None
    """Exponent of a Zipf law over the rows, 0 (uniform) to 5."""
    hot_rows_first: bool = False
    """With zipf: whether popular rows have small ids; otherwise ids are taken as hashed."""
    reuse_histogram: Annotated[Bins | None, stated(minItems=1)] = None
    """Share of the distinct rows that are hit 1, 2, 3-4, 5-8, 9-16, ... times in one batch."""
    mean_hits: Bins | None = None
    """With reuse_histogram: mean hits of the rows of every bin; by default as in a power law."""
    range_lookups: Ranges | None = None
    """With reuse_histogram: share of the lookups on each of some equally long ranges of rows, the
    smallest ids first; by default ids are taken as hashed."""
    range_rows: Ranges | None = None
    """With range_lookups: share of the distinct rows in each of these ranges."""
    unique_fraction: SomeShare = None
    """Distinct rows over lookups in one batch."""
    num_lookups: Annotated[float | None, stated(minimum=1, maximum=limits.MOST_LOOKUPS)] = None
    """With reuse_histogram and unique_fraction: lookups of the table in the batch that was
    counted; by default local_batch_size * pooling_factor."""


InputsField = Annotated[
    Inputs,
    BeforeValidator(_spelled_out, json_schema_input_type=Inputs | Literal["uniform"]),
    Field(
        default_factory=lambda: Inputs(zipf=Zipf().exponent),
        description="Which rows a batch hits, and how often; by default a Zipf law of exponent "
        f"{Zipf().exponent}. `uniform` is short for a Zipf exponent of 0.",
    ),
]


class TableFields(_WorkloadSection):
    """Fields of a table that `defaults` may set for all tables."""

    num_embeddings: Annotated[Int64 | None, stated(minimum=1, maximum=limits.MOST_ROWS)] = None
    """Rows. Needed here or in `defaults`."""
    embedding_dim: Annotated[
        Int64 | None, stated(minimum=4, multipleOf=4, maximum=limits.MOST_COLUMNS)
    ] = None
    """Columns, a multiple of 4. On GPUs more than 2,048 are always split: FBGEMM takes no wider
    shards. Needed here or in `defaults`."""
    pooling_factor: SomeIds = _TABLE["pooling_factor"]
    """Mean number of ids looked up per sample, over all features of the table."""
    pooling_std: Ids = _TABLE["pooling_std"]
    """Standard deviation of the number of ids per sample."""
    longest_bag: Ids = _TABLE["longest_bag"]
    """Ids of the longest bag in a batch: small lookups wait for it. By default what a bag has on
    average."""
    bags_per_sample: SomeIds = _TABLE["bags_per_sample"]
    """Pooled outputs that a feature has per sample, on average: below 1 with a variable batch per
    feature (TorchRec's VBE), whose samples share outputs."""
    data_type: Annotated[DataType, Field(strict=False)] = _TABLE["data_type"]
    """Element type of the weights."""
    pooling: Annotated[Pooling, Field(strict=False)] = _TABLE["pooling"]
    """How the rows looked up by one sample become its embedding."""
    weighted: bool = _TABLE["weighted"]
    """Whether each id carries a per-sample weight."""
    inputs: InputsField
    sharding_types: list[Annotated[ShardingType, Field(strict=False)]] = _TABLE["sharding_types"]
    """Sharding types to choose from; empty stands for all that suit the table."""
    compute_kernels: list[Annotated[ComputeKernel, Field(strict=False)]] = _TABLE["compute_kernels"]
    """Kernels to choose from; empty stands for `fused` (and `dense` for data_parallel)."""
    min_shard_dim: Columns = _TABLE["min_shard_dim"]
    """Narrowest column shard allowed, in columns (TorchRec's `min_partition`)."""
    optimizer: Annotated[Optimizer, Field(strict=False)] | None = _TABLE["optimizer"]
    """What updates it, fused into its backward pass; by default the workload's `optimizer`."""
    cache_load_factor: SomeShare = _TABLE["cache_load_factor"]
    """Share of the rows that `fused_uvm_caching` keeps in HBM; without it the planner chooses."""
    stash_weights: bool = _TABLE["stash_weights"]
    """Whether weights in HBM are copied to host memory after their lookup and back in the backward
    (TorchRec's `stash_weights`, with TrainPipelineSparseDistEmbStash)."""


Count = Annotated[Int64, Field(ge=1, le=limits.MOST_TABLES)]


class Table(TableFields):
    """One embedding table, and how a training batch reads it."""

    model_config = ConfigDict(json_schema_extra={"required": ["name"]})

    name: Name | None = None
    """Unique in the file. Needed."""
    count: Count = 1
    """So many tables like this one, named `name_0`, `name_1` and so on; 1 leaves the name."""
    feature_names: Features = _TABLE["feature_names"]
    """Features that share the table; empty stands for one feature of the table's name."""
    ranks: Annotated[list[Rank], stated(uniqueItems=True)] = _TABLE["ranks"]
    """Ranks (GPUs, from 0) that the table is to be on, and no others; empty stands for any. One for
    table_wise; one for each block of columns, in order, for column_wise and table_column_wise; all
    of a node for table_row_wise, of several for grid_shard (if sharding_types has only these, one
    rank stands for its node); all there are for row_wise and data_parallel."""


class Comms(_WorkloadSection):
    """Quantized communication (TorchRec's `qcomm`): element types on the wire."""

    forward: Annotated[DataType, Field(strict=False)] | None = None
    """Type in which embeddings are sent; by default, and with `fp32`, `output_type`."""
    backward: Annotated[DataType, Field(strict=False)] | None = None
    """Type in which their gradients are sent; by default, and with `fp32`, `output_type`."""


class DenseFields(_WorkloadSection):
    """The data-parallel part: bottom MLP, interaction, top MLP, or operators of a file."""

    num_dense_features: Width = _DENSE["num_dense_features"]
    """Width of the dense input."""
    bottom_mlp: Layers = _DENSE["bottom_mlp"]
    """Output width of every layer."""
    interaction: Annotated[Interaction, Field(strict=False)] = _DENSE["interaction"]
    """How dense and sparse features meet before the top MLP."""
    fused_interaction: bool = _DENSE["fused_interaction"]
    """dot: one hand-written kernel per direction instead of cat, bmm, index, cat."""
    cross_layers: Int64 = Field(
        default=_DENSE["cross_layers"], ge=0, json_schema_extra={"maximum": limits.MOST_LAYERS}
    )
    """dcn_v2: number of cross layers."""
    cross_rank: Int64 = Field(
        default=_DENSE["cross_rank"], ge=1, json_schema_extra={"maximum": limits.MOST_WIDTH}
    )
    """dcn_v2: width of the low-rank projection."""
    top_mlp: TopLayers = _DENSE["top_mlp"]
    """Output width of every layer."""
    precision: Annotated[DataType, Field(strict=False)] = _DENSE["precision"]
    """Arithmetic of the matrix products; fp16 and bf16 stand for automatic mixed precision."""
    optimizer: Annotated[Optimizer, Field(strict=False)] = _DENSE["optimizer"]
    """What updates the dense parameters."""
    optimizer_implementation: Annotated[OptimizerImplementation, Field(strict=False)] | None = None
    """`foreach` or `fused` where the optimizer is made with `foreach=True` or `fused=True`; by
    default what torch takes: foreach on GPUs, but the loop if a table is data_parallel."""
    launch: Annotated[LaunchMode, Field(strict=False)] = _DENSE["launch"]
    """How forward and backward are issued: `eager`, `compiled` (torch.compile), or `cuda_graphs`
    (torch.cuda.make_graphed_callables)."""
    model_parameters: Parameters = _DENSE["model_parameters"]
    """Parameters of the model's dense part, written where these layers were read off a TorchRec
    model and are not all that it has; 0: they are."""
    read_parameters: Parameters = _DENSE["read_parameters"]
    """Those of model_parameters that the layers were read off."""
    most_products: Products = _DENSE["most_products"]
    """Multiplications of a sample's forward that the model may have, where it was read in part:
    they widen the interval of the step. 0: as many as these layers have."""


class DenseByFile(DenseFields):
    """As it is read, but for operators that are in the file itself."""

    operators: str | None = None
    """The file that they are in."""


class Dense(DenseFields):
    """The data-parallel part of a model: bottom MLP, interaction, top MLP, or any operators."""

    operators: str | DenseFile | None = None
    """Instead of layers: the file of what the dense part runs, by its path from this file's folder
    (`planner trace-model` writes it), or what is in it."""


class Head(_WorkloadSection):
    """Everything in a workload file but the tables."""

    name: str = _WORKLOAD["name"]
    """What reports call the model."""
    local_batch_size: Samples = _WORKLOAD["local_batch_size"]
    """Samples per rank (GPU) and batch; a step has one, unless gradients are accumulated."""
    pipeline: Annotated[Pipeline, Field(strict=False)] = _WORKLOAD["pipeline"]
    """How the training loop overlaps batches: `none` and `sparse_dist` are TorchRec's
    TrainPipelineBase and TrainPipelineSparseDist, `prefetch_sparse_dist` its
    PrefetchTrainPipelineSparseDist, `fused_sparse_dist` its TrainPipelineFusedSparseDist,
    `semi_sync` its TrainPipelineSemiSync, `dlrm` is plain facebookresearch/dlrm."""
    gradient_accumulation_steps: Batches = _WORKLOAD["gradient_accumulation_steps"]
    """Batches whose dense gradients add up before they are reduced and the dense model is updated:
    one step (`num_steps` of TorchRec's GradientAccumulationWrapper)."""
    optimizer: Annotated[Optimizer, Field(strict=False)] = _WORKLOAD["optimizer"]
    """What updates the embeddings, fused into their backward pass."""
    output_type: Annotated[DataType, Field(strict=False)] = _WORKLOAD["output_type"]
    """Element type of the looked-up embeddings (FBGEMM's `output_dtype`)."""
    comms: Comms = Field(default_factory=Comms)
    """Quantized communication; by default none."""
    index_bytes: Literal[4, 8] = _WORKLOAD["index_bytes"]
    """Bytes of one id on the wire."""
    length_spread: Spread = _WORKLOAD["length_spread"]
    """Standard deviation over ranks of the ids in a rank's batch, over their mean: all wait for the
    rank that has most. By default that of independent samples, by the tables' `pooling_std`."""
    restore_site: Layer = _WORKLOAD["restore_site"]
    """Layer of `top_mlp`, from 0 on, with whose gradient stashed weights begin to come back
    (`site_fqn`); by default with the exchange of the embeddings' gradients, the latest."""
    dense: Dense = Field(default_factory=Dense)
    """The data-parallel part of the model."""


class WorkloadFile(Head):
    """A recommendation model and how it is trained. Sizes are counts, SI units, no suffixes."""

    defaults: TableFields = Field(default_factory=TableFields.model_construct)
    """Fields given to every table that does not set them itself."""
    tables: Annotated[
        list[Table], Field(min_length=1, json_schema_extra={"maxItems": limits.MOST_TABLES})
    ]
    """The embedding tables."""
