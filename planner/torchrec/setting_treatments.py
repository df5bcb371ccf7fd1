"""How every setting of TorchRec's planner is treated.

``SETTINGS`` has every field of the classes through which a script sets up TorchRec's planner. A
field that is set and changes nothing here is named in one warning, with what it would have changed;
so is an unknown field, of a later TorchRec or of the script's own subclass. The table in
docs/reference is made of this one, and a test tries every field.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from inspect import Parameter, get_annotations, signature
from typing import Any


class Treatment(StrEnum):
    """How a setting is treated."""

    SUPPORTED = "supported"
    APPROXIMATED = "approximated"
    WARNED = "warned"
    NEUTRAL = "neutral"
    """Has no effect on time and memory; passed on if modules use it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How one setting is treated."""

    treatment: Treatment
    text: str
    """What it does here, or what it would have changed."""


_YES, _ROUGHLY, _NO, _NEUTRAL = Treatment


def _all(treatment: Treatment, text: str, *names: str) -> dict[str, Setting]:
    """Return the same treatment and text for some settings, by name."""
    return dict.fromkeys(names, Setting(treatment, text))


_OWN_SEARCH = "the search is this planner's own, which takes its place"
_OWN_SPEEDS = "speeds are the hardware profile's (`hardware=`), measured where they could be"
_ASKED_OF_FBGEMM = "handed on to the module; its memory and time are not in the model"
_OF_TRAINING = "of the training, not of a step's time or memory"
_THEIR_OPTION = "gets TorchRec's own option and estimate; the rest is planned around it"
_REMAPPED = "its tables of ids are counted as memory; the time to remap ids and to evict is not"
_PRUNED = "its maps of pruned rows are counted as memory; remapping and pruning are not timed"

WRAPPERS: Mapping[str, str] = {
    "FeatureProcessedEmbeddingBagCollection": "its feature processor gives every id a weight, "
    "whose gradient is priced; the processor itself is not",
    "ManagedCollisionEmbeddingBagCollection": _REMAPPED,
    "ManagedCollisionEmbeddingCollection": _REMAPPED,
    "PECEmbeddingCollection": "its collision handlers are not timed",
    "ITEPEmbeddingBagCollection": _PRUNED,
    "ITEPEmbeddingCollection": _PRUNED,
}
"""Modules around a collection that is planned without them, and what that leaves out."""

SETTINGS: Mapping[str, Mapping[str, Setting]] = {
    "EmbeddingShardingPlanner": {
        "topology": Setting(_YES, "ranks, NVLink domains, memory of every rank; see Topology"),
        "batch_size": Setting(_YES, "samples per rank and step"),
        "storage_reservation": Setting(_YES, "asked what it leaves on every rank"),
        "constraints": Setting(_YES, "see ParameterConstraints; also by module path and table"),
        "timeout_seconds": Setting(_YES, "ends the search"),
        "stats": Setting(_YES, "told of the plan, with TorchRec's estimates of it"),
        "callbacks": Setting(_YES, "called with the chosen options, whose plan is returned"),
        "plan_loader": Setting(
            _YES, "tables that it has a plan for keep it, and the rest is planned around them"
        ),
        "enumerator": Setting(
            _ROUGHLY, "what it lists of a table may be chosen, and no more: sharding types, their "
            "kernels, the narrowest column shards, and what else a constraint says; it gives "
            "TorchRec's estimates of the plan",
        ),
        "debug": Setting(_NEUTRAL, "whether the predicted step is logged"),
        **_all(_NO, _OWN_SEARCH, "proposer", "partitioner"),
        "performance_model": Setting(_NO, "plans are rated by the simulated step instead"),
    },
    "Topology": {
        **_all(_YES, "number of ranks, and of ranks in a host", "world_size", "local_world_size"),
        "pod_size": Setting(
            _YES, "hosts of one NVLink domain, which is what hierarchical sharding calls a node"
        ),
        "compute_device": Setting(_YES, "what sharders offer, and where shards are"),
        "hbm_cap": Setting(_YES, "memory of every rank"),
        "ddr_cap": Setting(_ROUGHLY, "a host has as much as its poorest rank for each of them"),
        "custom_topology_data": Setting(
            _ROUGHLY, "`hbm_cap` by rank is heeded, rows are split evenly; of `ddr_cap` the least"
        ),
        "ssd_cap": Setting(_NO, "no kernel that is modelled keeps rows on an SSD"),
        **_all(
            _NO, _OWN_SPEEDS, "hbm_mem_bw", "ddr_mem_bw", "ssd_mem_bw", "hbm_to_ddr_mem_bw",
            "intra_host_bw", "inter_host_bw", "generalized_comms_bandwidths",
        ),
        **_all(
            _NO, "backward kernels have models of their own", "bwd_compute_multiplier",
            "weighted_feature_bwd_compute_multiplier",
        ),
        "uneven_sharding_perf_multiplier": Setting(_NO, "shards are timed by what they hold"),
        "created_by_factory": Setting(_NEUTRAL, "keeps TorchRec's constructor quiet"),
    },
    "ParameterConstraints": {
        **_all(_YES, "what may be chosen", "sharding_types", "compute_kernels", "min_partition"),
        "pooling_factors": Setting(_YES, "ids per sample, in all features of the table"),
        "num_poolings": Setting(_YES, "ids and outputs of a feature that is pooled several times"),
        "batch_sizes": Setting(
            _YES, "lengths, ids and outputs follow each feature's own batch; outputs are spread "
            "over the samples that share them",
        ),
        "is_weighted": Setting(_YES, "ids carry weights"),
        "cache_params": Setting(_ROUGHLY, "see CacheParams"),
        "output_dtype": Setting(
            _ROUGHLY, "a workload has one type of output: the widest that a table asks for"
        ),
        "device_group": Setting(_YES, "tables of another device are left out, and named"),
        "key_value_params": Setting(_ROUGHLY, "see KeyValueParams"),
        "use_virtual_table": Setting(
            _NO, "the table's own configuration says so, and its plan is TorchRec's"
        ),
        "enforce_hbm": Setting(_NO, _ASKED_OF_FBGEMM),
        "num_nodes": Setting(
            _NO, "rows of `table_row_wise` are split within one node, as in TorchRec 1.9.2; over "
            "several, as in pull request 4681, they are not planned",
        ),
        "stochastic_rounding": Setting(_NEUTRAL, "handed on; no kernel's time was seen to change"),
        "bounds_check_mode": Setting(_NO, _ASKED_OF_FBGEMM),
        "feature_names": Setting(_NEUTRAL, "a name for reports; the model's features count"),
    },
    "CacheParams": {
        "load_factor": Setting(_YES, "share of the rows in HBM; without it, the search chooses"),
        "algorithm": Setting(_NO, "handed on; the cache is modelled as LRU"),
        "reserved_memory": Setting(_NO, _ASKED_OF_FBGEMM),
        "precision": Setting(_NO, "handed on; cached rows are counted in the weights' type"),
        "prefetch_pipeline": Setting(
            _YES, "the training loop is taken to be PrefetchTrainPipelineSparseDist"
        ),
        "stats": Setting(
            _NO, "misses follow from the ids' distribution: give `sample_batches` instead"
        ),
        "multipass_prefetch_config": Setting(_NO, _ASKED_OF_FBGEMM),
    },
    "KeyValueParams": _all(
        _ROUGHLY, "handed on; key-value tables get TorchRec's own option and estimate",
        "ssd_storage_directory", "ssd_rocksdb_write_buffer_size", "ssd_rocksdb_shards",
        "gather_ssd_cache_stats", "stats_reporter_config", "use_passed_in_path", "l2_cache_size",
        "max_l1_cache_size", "enable_async_update", "bulk_init_chunk_size",
        "lazy_bulk_init_enabled", "enable_raw_embedding_streaming", "res_store_shards",
        "kvzch_tbe_config", "load_ckpt_without_opt", "ps_hosts", "ps_client_thread_num",
        "ps_max_key_per_request", "ps_max_local_index_length",
    ),
    "sharder": {
        "fused_params": Setting(_YES, "see fused_params"),
        "qcomm_codecs_registry": Setting(
            _ROUGHLY, "types of outputs and gradients on the wire; where sharders differ, the "
            "widest, and MX4 as FP8",
        ),
        "use_index_dedup": Setting(
            _ROUGHLY, "unique ids are sent, looked up and sent back; the kernels that find them "
            "and spread the rows again are not timed",
        ),
        **_all(_YES, "the wrapped collection's sharder is heeded", "ebc_sharder",
               "ec_sharder"),
        "mc_sharder": Setting(_YES, "restricts sharding types"),
        "shardable_params": Setting(_YES, "tables that it does not name are not sharded"),
        "sharded_module_order_overwrite": Setting(_NO, "modules run in the model's order"),
        "restore_dedup_feature_boundary": Setting(_NEUTRAL, "of outputs' names"),
    },
    "fused_params": {
        "optimizer": Setting(
            _ROUGHLY, "each table's own; those that are not modelled count as Adam, and are named"
        ),
        "cache_load_factor": Setting(_YES, "as CacheParams.load_factor"),
        "learning_rate": Setting(_YES, "of 0 freezes tables, which are then not replicated"),
        "output_dtype": Setting(_ROUGHLY, "as ParameterConstraints.output_dtype"),
        **_all(
            _NO, _ASKED_OF_FBGEMM, "cache_algorithm", "cache_sets", "cache_reserved_memory",
            "cache_precision", "weights_precision", "enforce_hbm", "bounds_check_mode",
            "uvm_non_rowwise_momentum", "prefetch_pipeline", "optimizer_state_dtypes",
            "multipass_prefetch_config", "uvm_host_mapped", "embedding_table_index_type",
            "embedding_table_offset_type", "enable_raw_embedding_streaming", "res_params",
            "use_experimental_tbe", "ensemble_mode", "emainplace_mode", "global_weight_decay",
            "counter_based_regularization", "cowclip_regularization", "extra_optimizer_config",
            "is_qr_tbe", "preallocated_host_buffers", "tbe_input_multiplexer_config",
            "record_cache_metrics", "gather_uvm_cache_stats", "stats_reporter_config",
        ),
        **_all(
            _NEUTRAL, _OF_TRAINING, "eps", "momentum", "weight_decay",
            "weight_decay_mode", "eta", "beta1", "beta2", "gradient_clipping", "max_gradient",
            "max_norm", "stochastic_rounding",
        ),
        **_all(
            _NEUTRAL, "set by TorchRec's modules themselves", "embedding_specs",
            "feature_table_map", "pooling_mode", "device", "table_names", "embedding_shard_info",
        ),
    },
    "table": {
        **_all(_YES, "the table's size", "num_embeddings", "embedding_dim"),
        "name": Setting(_YES, "its name in the plan"),
        "data_type": Setting(_YES, "bytes of its weights"),
        "feature_names": Setting(_YES, "what reads it"),
        "pooling": Setting(_YES, "how rows become an output"),
        "use_virtual_table": Setting(_ROUGHLY, "gets TorchRec's own option and estimate"),
        "total_num_buckets": Setting(_ROUGHLY, "heeded by TorchRec's own option for such a table"),
        "virtual_table_eviction_policy": Setting(_NO, "TorchRec's estimates do not look at it"),
        "stash_weights": Setting(
            _ROUGHLY, "with `pipeline` sparse_dist: weights leave HBM after their lookup and come "
            "back in the backward (`restore_site`), as in TrainPipelineSparseDistEmbStash; its "
            "`delay_stash` is not known, and other loops leave them in HBM",
        ),
        "enable_embedding_update": Setting(_NO, "writes of embeddings are not timed"),
        "need_pos": Setting(_NEUTRAL, "lets a feature processor's rows be split"),
        **_all(
            _NEUTRAL, _OF_TRAINING, "weight_init_max", "weight_init_min", "init_fn",
            "num_embeddings_post_pruning", "input_dim",
        ),
    },
    "GradientAccumulationConfig": {
        "num_steps": Setting(
            _YES, "`IterationTimePlanner(gradient_accumulation_steps=)`: batches of a step"
        ),
        "is_enabled": Setting(_NEUTRAL, "one batch a step is none"),
        "num_warmup_steps": Setting(_NEUTRAL, "of the first steps only"),
    },
    "storage_reservation": _all(
        _YES, "asked what it leaves on every rank", "FixedPercentageStorageReservation",
        "FixedAbsoluteStorageReservation", "HeuristicalStorageReservation",
        "InferenceStorageReservation", "SKUAwareStorageReservation",
    ),
    "module": {
        "EmbeddingBagCollection": Setting(_YES, "pooled tables, with weights of ids or without"),
        "EmbeddingCollection": Setting(_YES, "unpooled tables"),
        **{name: Setting(_ROUGHLY, left_out) for name, left_out in WRAPPERS.items()},
        **_all(
            _ROUGHLY, _THEIR_OPTION, "EmbeddingBag", "EmbeddingTower", "EmbeddingTowerCollection",
            "FusedEmbeddingBagCollection", "FusedEmbeddingCollection",
        ),
    },
    "compute_kernel": {
        **_all(_YES, "modelled", "dense", "fused", "fused_uvm", "fused_uvm_caching"),
        **_all(
            _ROUGHLY, _THEIR_OPTION, "key_value", "ssd_virtual_table", "dram_virtual_table",
            "dram_ssd_virtual_table", "customized_kernel", "fused_triton", "unfused_tpu",
        ),
    },
}  # fmt: skip
"""Settings by owner: TorchRec's classes, ``sharder`` for the constructors of all sharders,
``fused_params`` for FBGEMM's arguments in them, ``table`` for its configuration; and the classes of
storage reservations, of modules that training sharders shard, and of compute kernels."""

_UNKNOWN = Setting(_NO, "this planner does not know it: it may be of a later TorchRec")


def unheeded(
    owner: str,
    values: Mapping[str, object],
    defaults: Mapping[str, object],
    unknown: Mapping[str, Setting] | None = None,
    settings: Mapping[str, Mapping[str, Setting]] = SETTINGS,
) -> Iterator[tuple[str, str]]:
    """Yield (``owner.name``, reason) for each value that is set and changes nothing.

    ``unknown`` explains names that are not in ``settings``.
    """
    for name, value in values.items():
        setting = settings[owner].get(name) or (unknown or {}).get(name, _UNKNOWN)
        if setting.treatment is Treatment.WARNED and not _same(value, defaults.get(name)):
            yield f"{owner}.{name}", setting.text


def unheeded_fields(
    owner: str, record: object, settings: Mapping[str, Mapping[str, Setting]] = SETTINGS
) -> Iterator[tuple[str, str]]:
    """Yield (``owner.field``, reason) for a dataclass's fields that are set and change nothing."""
    if record is None or not is_dataclass(record):
        return
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    kind = type(record)
    yield from unheeded(owner, values, field_defaults(kind), _added_fields(kind), settings)


def _added_fields(kind: type) -> dict[str, Setting]:
    """Return the settings for fields that a script's subclasses have added to a TorchRec class."""
    added: dict[str, Setting] = {}
    for each in reversed(kind.__mro__):
        if each.__module__.partition(".")[0] != "torchrec":
            text = f"a field of the script's own `{each.__name__}`, which no planner here reads"
            added |= dict.fromkeys(get_annotations(each), Setting(_NO, text))
    return added


def field_defaults(kind: Any) -> dict[str, object]:  # noqa: ANN401 - a dataclass
    """Return the default of every field that has one."""
    made = {
        field.name: field.default_factory()
        for field in fields(kind)
        if field.default_factory is not MISSING
    }
    plain = {field.name: field.default for field in fields(kind) if field.default is not MISSING}
    return {**plain, **made}


def argument_defaults(function: Any) -> dict[str, object]:  # noqa: ANN401 - a callable
    """Return the default of every argument; None if it has none."""
    return {
        name: None if parameter.default is Parameter.empty else parameter.default
        for name, parameter in signature(function).parameters.items()
        if name not in {"self", "args", "kwargs"}
    }


def _same(value: object, default: object) -> bool:
    return value is default or bool(value == default)
