"""How every field of a request to TorchRec's unified planner is treated (torchrec 1.9.2).

``setting_treatments`` has the classes behind the old constructor. A test tries every field.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from planner.torchrec.setting_treatments import Setting, Treatment, unheeded_fields

_YES, _ROUGHLY, _NO, _NEUTRAL = Treatment
_OWN_SEARCH = Setting(_NO, "the search is this planner's own, which takes its place")
_OWN_SPEEDS = Setting(_NO, "speeds are the hardware profile's, measured where they could be")
_LABEL = Setting(_NEUTRAL, "names the request or its job; TorchRec's planners do not read it")
_RESERVES = Setting(_YES, "of the storage reservation that it makes")

REQUEST_SETTINGS: Mapping[str, Mapping[str, Setting]] = {
    "ShardingPlanRequest": {
        "model": Setting(_YES, "the model, or a function that makes it"),
        "sharders": Setting(_YES, "see Sharders"),
        "world_size": Setting(_YES, "number of ranks"),
        "local_world_size": Setting(_YES, "ranks of a host"),
        "batch_size": Setting(_YES, "samples per rank and step"),
        "pod_size": Setting(_YES, "hosts of one NVLink domain"),
        "storage_reservation": Setting(_YES, "asked what it leaves; before the config's policy"),
        "constraints": Setting(_YES, "see ParameterConstraints"),
        "hbm_gb": Setting(_YES, "memory of a rank; without it, that of the SKU's profile"),
        "ddr_gb": Setting(_YES, "host memory of a rank; without it, its part of the profile's"),
        "compute_device": Setting(_YES, "what sharders offer, and where shards are"),
        "planner_config": Setting(_YES, "see PlannerConfig"),
        "capture_search_space": Setting(_YES, "the enumerator's options are captured"),
        "training_framework": _LABEL,
        "launcher_hardware": _LABEL,
        "request_id": _LABEL,
        "sku_list": Setting(_YES, "each is planned for, by its profile"),
        "per_sku_overrides": Setting(_ROUGHLY, "see SkuOverride"),
        "cache_config": Setting(_NO, "no plan is kept: `plan_loader` takes one"),
    },
    "PlannerConfig": {
        "planner_variant": Setting(_NO, "the planner is the provider's"),
        "storage_reservation_policy": Setting(
            _YES, "which reservation is made; where nothing is said, the memory that is predicted "
            "for dense part, inputs and activations is left free, and a tenth",
        ),
        "storage_reservation_percentage": _RESERVES,
        "dense_tensor_estimate": _RESERVES,
        "parameter_multiplier": _RESERVES,
        "model_base_bytes": Setting(_YES, "with the policy sku_aware: what is kept of a rank"),
        "home_sku": Setting(_YES, "with the policy sku_aware: whose memory the share is of"),
        "timeout_seconds": Setting(_YES, "ends the search"),
        "pipeline_type": Setting(_YES, "how the training loop overlaps batches"),
        "debug": Setting(_NEUTRAL, "whether the predicted step is logged"),
        "use_hardware_based_compute": _OWN_SPEEDS,
        "use_hardware_based_bandwidth": _OWN_SPEEDS,
        "bwd_compute_multiplier": Setting(_NO, "backward kernels have models of their own"),
        "manifold_path": Setting(_NO, "no plan is loaded: `plan_loader` takes one"),
        "use_batch_inputs_for_expected_cache_fetches": Setting(
            _NO, "misses follow from the ids' distribution"
        ),
        "use_linear_regression_prefetch_estimate": Setting(
            _NO, "a prefetch is timed by the rows that it moves"
        ),
        **dict.fromkeys(
            (
                "proposer_type", "proposer_config", "partitioner_type", "partitioner_sort_by",
                "balance_modules", "memory_balanced_max_search_count",
                "memory_balanced_tolerance", "performance_model",
            ),
            _OWN_SEARCH,
        ),
    },
    "SkuOverride": {
        "hbm_gb": Setting(_YES, "memory of a rank, before the request's"),
        "ddr_gb": Setting(_YES, "host memory of a rank, before the request's"),
        "intra_host_bw": _OWN_SPEEDS,
        "inter_host_bw": _OWN_SPEEDS,
    },
}  # fmt: skip
"""Fields by class; those of a dry run's request are with the request's."""


def unheeded_request(request: Any, override: Any = None) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """Yield (``class.field``, reason) for a request's fields that are set and change nothing."""
    for owner, record in (
        ("ShardingPlanRequest", request),
        ("PlannerConfig", request.planner_config),
        ("SkuOverride", override),
    ):
        yield from unheeded_fields(owner, record, REQUEST_SETTINGS)
    config = request.planner_config
    if getattr(config.storage_reservation_policy, "value", "") != "sku_aware":
        for name in ("model_base_bytes", "home_sku"):
            if getattr(config, name, None) is not None:
                yield f"PlannerConfig.{name}", "only the policy sku_aware has it"
