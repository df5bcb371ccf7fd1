"""What is trained: embedding tables, how a batch reads them, the dense model around them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from math import ceil, sqrt

from costmodel.base import limits
from costmodel.base.field_values import make_plain
from costmodel.base.limits import check_at_most
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.inputs.distribution import InputDistribution, Zipf
from costmodel.operators.operator_list import OperatorList, Size


class DataType(StrEnum):
    """Element types, by TorchRec's names in lower case."""

    FP32 = "fp32"
    TF32 = "tf32"
    """FP32 in memory, 10-bit mantissa in matrix products; only for ``DenseModel.precision``."""
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"

    @property
    def num_bytes(self) -> int:
        """Bytes of one element in memory."""
        return _ELEMENT_BYTES[self]

    @property
    def scale_bytes(self) -> int:
        """Bytes of scale and offset that a row of weights has beside its elements.

        FBGEMM keeps them with every row of INT8, in the shard (fbgemm_gpu 1.8.0,
        split_table_batched_embeddings_ops_training.py, ``INT8_EMB_ROW_DIM_OFFSET``).
        """
        return 8 if self is DataType.INT8 else 0


TORCH_TYPES = {
    "float32": DataType.FP32,
    "float16": DataType.FP16,
    "half": DataType.FP16,
    "bfloat16": DataType.BF16,
}
"""By torch's names."""


_ELEMENT_BYTES = {
    DataType.FP32: 4,
    DataType.TF32: 4,
    DataType.FP16: 2,
    DataType.BF16: 2,
    DataType.FP8: 1,
    DataType.INT8: 1,
}


class Pooling(StrEnum):
    """How the rows looked up by one sample become its embedding (TorchRec's ``PoolingType``)."""

    SUM = "sum"
    MEAN = "mean"
    NONE = "none"
    """No pooling: one row per id, as in ``EmbeddingCollection``."""


class Optimizer(StrEnum):
    """Sparse optimizers fused into the backward pass, by FBGEMM's names."""

    SGD = "sgd"
    ROWWISE_ADAGRAD = "rowwise_adagrad"
    ADAGRAD = "adagrad"
    ADAM = "adam"
    PARTIAL_ROWWISE_ADAM = "partial_rowwise_adam"

    def state_bytes_per_row(self, embedding_dim: float) -> float:
        """Bytes of optimizer state kept per embedding row: FP32, FBGEMM's state tensors.

        SGD 0, row-wise Adagrad one number, Adagrad D, Adam 2 D, partial row-wise Adam D + 1.
        """
        full, scalar = _STATE_NUMBERS[self]
        return 4.0 * (full * embedding_dim + scalar)

    @property
    def elementwise(self) -> "Optimizer":
        """What stands for it where parameters have no rows, as in linear layers."""
        return _ELEMENTWISE.get(self, self)


class OptimizerImplementation(StrEnum):
    """How torch runs an optimizer over many parameters, by its documentation's names."""

    FOR_LOOP = "for_loop"
    """One kernel for each operation and parameter."""
    FOREACH = "foreach"
    """One kernel for each operation on all parameters (``foreach=True``)."""
    FUSED = "fused"
    """One kernel (``fused=True``)."""


_STATE_NUMBERS = {
    Optimizer.SGD: (0, 0),
    Optimizer.ROWWISE_ADAGRAD: (0, 1),
    Optimizer.ADAGRAD: (1, 0),
    Optimizer.ADAM: (2, 0),
    Optimizer.PARTIAL_ROWWISE_ADAM: (1, 1),
}


_ELEMENTWISE = {
    Optimizer.ROWWISE_ADAGRAD: Optimizer.ADAGRAD,
    Optimizer.PARTIAL_ROWWISE_ADAM: Optimizer.ADAM,
}


class Pipeline(StrEnum):
    """How the training loop overlaps batches."""

    NONE = "none"
    """TorchRec's ``TrainPipelineBase``: input distribution, copies and compute back to back."""
    SPARSE_DIST = "sparse_dist"
    """TorchRec's ``TrainPipelineSparseDist``: the next batch is distributed during this one."""
    PREFETCH = "prefetch_sparse_dist"
    """TorchRec's ``PrefetchTrainPipelineSparseDist``: the same, and rows of the next batch come
    into UVM caches while this batch's are locked there until its backward."""
    FUSED_SPARSE_DIST = "fused_sparse_dist"
    """TorchRec's ``TrainPipelineFusedSparseDist``: a batch is looked up as soon as the rows of the
    one before are updated, beside the dense optimizer."""
    SEMI_SYNC = "semi_sync"
    """TorchRec's ``TrainPipelineSemiSync``: the next batch is looked up before this one's update,
    so that its embeddings travel during this one's backward."""
    DLRM = "dlrm"
    """Plain facebookresearch/dlrm, the paper's setting: table-wise only, no input distribution."""

    @property
    def batches_in_cache(self) -> int:
        """Batches whose rows no UVM cache may evict while it takes a batch's rows in."""
        return 2 if self is Pipeline.PREFETCH else 1


class LaunchMode(StrEnum):
    """How the host issues the kernels of the dense model's forward and backward.

    Lookups, exchanges and the optimizer stay as they are: their sizes change with every batch, or
    they have settings of their own.
    """

    EAGER = "eager"
    COMPILED = "compiled"
    """``torch.compile``: one call for all kernels up to the next exchange, and their launches. The
    kernels are taken to be eager mode's; what Inductor fuses comes on top."""
    CUDA_GRAPHS = "cuda_graphs"
    """``torch.cuda.make_graphed_callables``: one launch for all of them. All-reduces start as in
    eager mode, as soon as their bucket is full."""


class Interaction(StrEnum):
    """How dense and sparse features meet before the top MLP."""

    DOT = "dot"
    CAT = "cat"
    DCN_V2 = "dcn_v2"
    """Low-rank cross network over the concatenated features (DLRM-DCNv2)."""


BAG_STEP = 2.0**-20
"""Bags per sample are counted in steps of this, so that sums of them are exact."""
DEFAULT_CACHE_LOAD_FACTOR = 0.2
"""FBGEMM's, and TorchRec's: split_table_batched_embeddings_ops_training.py (fbgemm_gpu 1.8.0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingTable:
    """One table of a recommendation model, and how a training batch reads it."""

    name: str
    num_embeddings: int
    """Rows."""
    embedding_dim: int
    """Columns; a multiple of 4, as FBGEMM needs."""
    pooling_factor: float = 1.0
    """Mean number of ids looked up per sample, over all features of the table."""
    pooling_std: float = 0.0
    """Standard deviation of that number, from sample to sample."""
    longest_bag: float = 0.0
    """Ids of the longest bag in a batch, which a warp reads one row after the other; 0: as many as
    all have."""
    feature_names: tuple[str, ...] = ()
    """Features that share the table; empty stands for one feature of the table's name."""
    bags_per_sample: float = 1.0
    """Pooled outputs that a feature has per sample, on average: below 1 with a variable batch per
    feature, whose samples share outputs; above 1 where a sample is pooled several times."""
    data_type: DataType = DataType.FP32
    pooling: Pooling = Pooling.SUM
    weighted: bool = False
    """Whether each id carries a per-sample weight."""
    inputs: InputDistribution = field(default_factory=Zipf)
    """Which rows a batch hits, and how often."""
    sharding_types: tuple[ShardingType, ...] = ()
    """Sharding types to choose from; empty stands for all that suit the table."""
    compute_kernels: tuple[ComputeKernel, ...] = ()
    """Kernels to choose from; empty stands for ``fused`` (and ``dense`` for data_parallel)."""
    ranks: tuple[int, ...] = ()
    """Ranks that the table is to be on, in the order of its column blocks, and no others; empty
    stands for any (``validity.fixed_block_ranks`` says which sharding types are left)."""
    min_shard_dim: int = 4
    """Narrowest column shard allowed (TorchRec's ``min_partition``)."""
    optimizer: Optimizer | None = None
    """What updates it, fused into its backward; None: the workload's sparse optimizer."""
    cache_load_factor: float | None = None
    """Share of the rows that ``fused_uvm_caching`` keeps in HBM, in every plan; None: TorchRec's
    default, ``DEFAULT_CACHE_LOAD_FACTOR``, unless a plan says otherwise."""
    stash_weights: bool = False
    """Whether weights that fused kernels have in HBM are in host memory between the lookup and the
    backward of each batch (TorchRec's ``stash_weights``)."""

    def __post_init__(self) -> None:
        make_plain(self)
        if not self.name:
            raise ValueError("name must not be empty")
        check_at_most("name's length", len(self.name), limits.LONGEST_NAME)
        if self.num_embeddings < 1:
            raise ValueError(f"num_embeddings must be at least 1, got {self.num_embeddings}")
        check_at_most("num_embeddings", self.num_embeddings, limits.MOST_ROWS)
        check_at_most("embedding_dim", self.embedding_dim, limits.MOST_COLUMNS)
        if self.embedding_dim < 4 or self.embedding_dim % 4:
            raise ValueError(f"embedding_dim must be a multiple of 4, got {self.embedding_dim}")
        if not self.pooling_factor > 0:
            raise ValueError(f"pooling_factor must be above 0, got {self.pooling_factor}")
        check_at_most("pooling_factor", self.pooling_factor, limits.MOST_IDS)
        if not self.pooling_std >= 0:
            raise ValueError(f"pooling_std must be at least 0, got {self.pooling_std}")
        check_at_most("pooling_std", self.pooling_std, limits.MOST_IDS)
        if not self.longest_bag >= 0:
            raise ValueError(f"longest_bag must be at least 0, got {self.longest_bag}")
        check_at_most("longest_bag", self.longest_bag, limits.MOST_IDS)
        if not self.bags_per_sample > 0:
            raise ValueError(f"bags_per_sample must be above 0, got {self.bags_per_sample}")
        check_at_most("bags_per_sample", self.bags_per_sample, limits.MOST_IDS)
        check_at_most("feature_names' number", len(self.feature_names), limits.MOST_FEATURES)
        self._check_constraints()

    def _check_constraints(self) -> None:
        check_at_most("ranks", max(self.ranks, default=0), limits.MOST_RANKS - 1)
        if len(set(self.ranks)) < len(self.ranks) or min(self.ranks, default=0) < 0:
            given = ", ".join(map(str, self.ranks))
            raise ValueError(f"ranks must be different numbers from 0 on, got {given}")
        check_at_most("min_shard_dim", self.min_shard_dim, limits.MOST_COLUMNS)
        if self.min_shard_dim < 4 or self.min_shard_dim % 4:
            raise ValueError(f"min_shard_dim must be a multiple of 4, got {self.min_shard_dim}")
        if self.cache_load_factor is not None and not 0 < self.cache_load_factor <= 1:
            raise ValueError(f"cache_load_factor must be in (0, 1], got {self.cache_load_factor}")

    def __hash__(self) -> int:
        """Tables of one workload differ by name; to hash all fields takes ten times as long."""
        return hash((self.name, self.num_embeddings, self.embedding_dim))

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that read the table."""
        return self.feature_names or (self.name,)

    @property
    def cache_share(self) -> float:
        """Share of the rows that a cache keeps where no plan says it."""
        given = self.cache_load_factor
        return DEFAULT_CACHE_LOAD_FACTOR if given is None else given

    @property
    def num_features(self) -> int:
        """Number of features that read the table."""
        return max(1, len(self.feature_names))

    @property
    def num_bags(self) -> float:
        """Lengths of ids per sample: one per feature, unless features have batches of their own."""
        return ceil(self.num_features * self.bags_per_sample / BAG_STEP) * BAG_STEP

    @property
    def output_rows_per_sample(self) -> float:
        """Embedding vectors per sample after pooling: one per bag, or one per id unpooled."""
        return self.pooling_factor if self.pooling is Pooling.NONE else self.num_bags

    @property
    def row_bytes(self) -> float:
        """Bytes of one row of weights."""
        data_type = self.data_type
        return float(self.embedding_dim * data_type.num_bytes + data_type.scale_bytes)

    @property
    def weight_bytes(self) -> float:
        """Bytes of the whole table's weights, without optimizer state."""
        return self.num_embeddings * self.row_bytes


def lookup_kernel(table: EmbeddingTable) -> tuple[object, ...]:
    """Return what tables of one lookup kernel have in common, whatever their sharding."""
    return table.pooling, table.weighted, table.data_type, table.optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseModel:
    """The data-parallel part of a DLRM: bottom MLP, interaction, top MLP."""

    num_dense_features: int = 13
    bottom_mlp: tuple[int, ...] = (512, 256, 128)
    """Output width of every layer."""
    interaction: Interaction = Interaction.CAT
    """``dot`` needs vectors of one length; ``cat`` and ``dcn_v2`` take any."""
    fused_interaction: bool = False
    """One hand-written kernel per direction instead of cat, bmm, index, cat (dot only), as in
    NVIDIA's DLRM examples."""
    cross_layers: int = 3
    """DCNv2: number of cross layers."""
    cross_rank: int = 512
    """DCNv2: width of the low-rank projection."""
    top_mlp: tuple[int, ...] = (1024, 1024, 512, 256, 1)
    """Output width of every layer."""
    precision: DataType = DataType.FP32
    """Arithmetic of the matrix products; fp16 and bf16 stand for automatic mixed precision."""
    optimizer: Optimizer = Optimizer.SGD
    optimizer_implementation: OptimizerImplementation | None = None
    """None: torch's default, foreach on GPUs, unless a replicated table is among the parameters."""
    launch: LaunchMode = LaunchMode.EAGER
    model_parameters: int = 0
    """Parameters of the model's dense part where these layers were read off it, and may not be all
    that there is; 0: they are."""
    read_parameters: int = 0
    """Those of them that the layers were read off."""
    most_products: float = 0.0
    """Multiplications of one sample's forward that the model's linear layers may come to, where
    they were read in part; 0: as many as these layers'."""
    operators: OperatorList[Size] | None = None
    """What the dense part runs, instead of all that is said of its layers above."""

    def __post_init__(self) -> None:
        make_plain(self)
        if self.operators is not None:
            self._check_no_layers()
        if not self.top_mlp:
            raise ValueError("top_mlp needs at least one layer")
        if min((self.num_dense_features, *self.bottom_mlp, *self.top_mlp)) < 1:
            raise ValueError("layer widths must be at least 1")
        if self.cross_layers < 0:
            raise ValueError(f"cross_layers must be at least 0, got {self.cross_layers}")
        if self.cross_rank < 1:
            raise ValueError(f"cross_rank must be at least 1, got {self.cross_rank}")
        for name in ("bottom_mlp", "top_mlp"):
            check_at_most(f"layers of {name}", len(getattr(self, name)), limits.MOST_LAYERS)
            widest = max(getattr(self, name), default=0)
            check_at_most(f"widths of {name}", widest, limits.MOST_WIDTH)
        check_at_most("num_dense_features", self.num_dense_features, limits.MOST_WIDTH)
        check_at_most("cross_layers", self.cross_layers, limits.MOST_LAYERS)
        check_at_most("cross_rank", self.cross_rank, limits.MOST_WIDTH)
        for name, most in _MOST_READ.items():
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
            check_at_most(name, getattr(self, name), most)

    def _check_no_layers(self) -> None:
        told = (name for name in LAYER_FIELDS if getattr(self, name) != _default(name))
        name = next(told, None)
        if name is not None:
            raise ValueError(f"operators stand for the layers: {name} cannot be beside them")


LAYER_FIELDS = (
    "num_dense_features", "bottom_mlp", "interaction", "fused_interaction", "cross_layers",
    "cross_rank", "top_mlp", "model_parameters", "read_parameters", "most_products",
)  # fmt: skip
"""Fields of ``DenseModel`` that say what its layers are."""


def _default(name: str) -> object:
    return next(each.default for each in fields(DenseModel) if each.name == name)


_MOST_READ = {
    "model_parameters": limits.MOST_PARAMETERS,
    "read_parameters": limits.MOST_PARAMETERS,
    "most_products": limits.MOST_PRODUCTS,
}
UNREAD_DENSE = DenseModel(num_dense_features=1, bottom_mlp=(), top_mlp=(1,))
"""Stands for a dense part that nothing is known of: one layer of one output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model and how it is trained: everything about a step but the plan and the machine."""

    tables: tuple[EmbeddingTable, ...]
    dense: DenseModel = DenseModel()
    local_batch_size: int = 4096
    """Samples per rank and batch; a step has one batch, unless gradients are accumulated."""
    pipeline: Pipeline = Pipeline.SPARSE_DIST
    gradient_accumulation_steps: int = 1
    """Batches whose dense gradients add up before they are reduced and the dense model is updated
    (TorchRec's ``GradientAccumulationWrapper``); they are one step. Tables that are not replicated
    are updated after each."""
    optimizer: Optimizer = Optimizer.ROWWISE_ADAGRAD
    """Sparse optimizer, fused into the embedding backward; of tables that name no other."""
    output_type: DataType = DataType.FP32
    """Type of the looked-up embeddings, hence of the output collectives (FBGEMM's
    ``output_dtype``)."""
    comms_forward: DataType | None = None
    """Quantized communication of the forward output (TorchRec's ``qcomm``); None, FP32: none."""
    comms_backward: DataType | None = None
    """Quantized communication of the gradients; None, FP32: none."""
    index_bytes: int = 8
    """Bytes of one id on the wire."""
    length_spread: float | None = None
    """Standard deviation over ranks of the ids in a rank's batch, over their mean; None: that of
    independent samples and tables, by their ``pooling_std``."""
    restore_site: int | None = None
    """Layer of the top MLP, from 0 on, with whose parameters' gradient stashed weights begin to
    come back (``site_fqn`` of ``TrainPipelineSparseDistEmbStash``); None: they do when the
    embeddings' gradients begin to be exchanged."""
    name: str = "workload"
    _batch_spread: float = field(init=False, repr=False, compare=False)
    _stashes_weights: bool = field(init=False, repr=False, compare=False)
    _by_name: Mapping[str, EmbeddingTable] = field(init=False, repr=False, compare=False)
    _cache_widths: Mapping[object, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        make_plain(self)
        if not self.tables:
            raise ValueError("a workload needs at least one table")
        if self.optimizer in {table.optimizer for table in self.tables}:
            object.__setattr__(self, "tables", tuple(map(self._plainly_updated, self.tables)))
        self._check_count("local_batch_size", limits.MOST_SAMPLES)
        self._check_count("gradient_accumulation_steps", limits.MOST_ACCUMULATED)
        if self.length_spread is not None and not 0 <= self.length_spread <= 1:
            raise ValueError(f"length_spread must be in [0, 1], got {self.length_spread}")
        check_at_most("tables' number", len(self.tables), limits.MOST_TABLES)
        by_name = {table.name: table for table in self.tables}
        if len(by_name) < len(self.tables):
            times = Counter(table.name for table in self.tables)
            twice = sorted(name for name, count in times.items() if count > 1)
            raise ValueError(f"table names must be unique, got twice: {', '.join(twice)}")
        object.__setattr__(self, "_batch_spread", self._spread())
        object.__setattr__(self, "_by_name", by_name)
        stashes = any(table.stash_weights for table in self.tables)
        object.__setattr__(self, "_stashes_weights", stashes)
        object.__setattr__(self, "_cache_widths", self._widest_cached())
        self._check_stash()
        self._check_interaction()

    def __hash__(self) -> int:
        """Hash a few fields: results are kept by workload, and 5,000 tables take milliseconds."""
        return hash((self.name, self.local_batch_size, len(self.tables), self.tables[0]))

    def _check_count(self, name: str, most: int) -> None:
        number = getattr(self, name)
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
        check_at_most(name, number, most)

    def _spread(self) -> float:
        """Return the spread of a batch's ids: that of independent samples and tables adds up."""
        if self.length_spread is not None:
            return self.length_spread
        ids = sum(table.pooling_factor for table in self.tables)
        variance = sum(table.pooling_std**2 for table in self.tables)
        return sqrt(variance / self.local_batch_size) / ids

    def _plainly_updated(self, table: EmbeddingTable) -> EmbeddingTable:
        """Return a table that does not name the workload's optimizer again."""
        return replace(table, optimizer=None) if table.optimizer is self.optimizer else table

    def _check_interaction(self) -> None:
        if self.dense.operators is not None:
            return
        widths = {table.embedding_dim for table in self.tables}
        widths.update(self.dense.bottom_mlp[-1:])
        if self.dense.interaction is Interaction.DOT and len(widths) > 1:
            raise ValueError(
                "a dot interaction needs vectors of one length: every embedding_dim and the last "
                f"width of bottom_mlp; got {', '.join(map(str, sorted(widths)))}. "
                "`cat` and `dcn_v2` take any"
            )

    def _check_stash(self) -> None:
        if self.stashes_weights and self.pipeline is not Pipeline.SPARSE_DIST:
            raise ValueError(
                "stash_weights needs `pipeline: sparse_dist`: of TorchRec's pipelines "
                f"TrainPipelineSparseDistEmbStash alone brings them back; got {self.pipeline}"
            )
        if self.restore_site is not None and self.dense.operators is not None:
            raise ValueError("restore_site is a layer of top_mlp, which operators stand for")
        last = len(self.dense.top_mlp) - 1
        if self.restore_site is not None and not 0 <= self.restore_site <= last:
            raise ValueError(
                f"restore_site must be a layer of top_mlp, 0 to {last}, got {self.restore_site}"
            )

    def table(self, name: str) -> EmbeddingTable:
        """Return the table of that name (KeyError if there is none)."""
        return self._by_name[name]

    def optimizer_of(self, table: EmbeddingTable) -> Optimizer:
        """Return the sparse optimizer of a table."""
        return table.optimizer or self.optimizer

    def held_bytes(self, table: EmbeddingTable) -> float:
        """Return the bytes of a table's weights and of their optimizer's state."""
        state = self.optimizer_of(table).state_bytes_per_row(table.embedding_dim)
        return table.weight_bytes + table.num_embeddings * state

    def cache_columns(self, table: EmbeddingTable) -> int:
        """Return the width of the rows of the cache that a table may share; 0: there is none.

        One cache serves all cached tables of a lookup kernel, and is as wide as the widest
        (fbgemm_gpu 1.8.0, split_table_batched_embeddings_ops_training.py 955-960, 3742-3811). Which
        of the tables that may be cached will share a rank nobody knows: all of them count.
        """
        return self._cache_widths.get(lookup_kernel(table), 0)

    def _widest_cached(self) -> dict[object, int]:
        """Return the most columns that a cached table of every lookup kernel has."""
        widest: dict[object, int] = {}
        for table in self.tables:
            if ComputeKernel.FUSED_UVM_CACHING in table.compute_kernels:
                key = lookup_kernel(table)
                widest[key] = max(widest.get(key, 0), table.embedding_dim)
        return widest

    @property
    def stashes_weights(self) -> bool:
        """Return whether any table's weights leave HBM during the dense part."""
        return self._stashes_weights

    @property
    def batch_spread(self) -> float:
        """Return ``length_spread``, or what stands for it."""
        return self._batch_spread

    @property
    def samples_per_step(self) -> int:
        """Samples of a rank in one step, of all batches whose gradients add up."""
        return self.local_batch_size * self.gradient_accumulation_steps

    @property
    def weight_bytes(self) -> float:
        """Bytes of all tables' weights."""
        return sum(table.weight_bytes for table in self.tables)
