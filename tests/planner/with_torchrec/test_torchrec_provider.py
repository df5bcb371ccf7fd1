"""TorchRec's own executors and orchestrators, with our provider."""

import importlib
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest

pytest.importorskip(
    "torchrec.distributed.planner.provider", reason="torchrec has no unified planner API"
)

from torchrec.distributed.planner.api import ProductionPlannerOrchestrator
from torchrec.distributed.planner.dry_run.api import DryRunOrchestrator
from torchrec.distributed.planner.dry_run.types import CacheConfig, DryRunRequest, SkuOverride
from torchrec.distributed.planner.executor import DefaultPlannerExecutor
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    PlannerConfig,
    PlannerErrorType,
    PlannerSessionContext,
    PlannerVariant,
    ProposerConfig,
    ShardingPlanRequest,
    ShardingPlanResult,
    StorageReservationPolicy,
    TrainingFramework,
)
from torchrec_cases import SHARDERS, bags, table

from costmodel.base.units import GIB, MS
from costmodel.memory.rank_memory import memory_per_rank
from planner.files.profiles import load_profile
from planner.torchrec.planner import IterationTimePlanner
from planner.torchrec.predicted_options import predicted_options
from planner.torchrec.provider import IterationTimeProvider
from planner.torchrec.request_treatments import REQUEST_SETTINGS
from planner.torchrec.setting_treatments import Treatment, field_defaults

PROFILES = {"H100": "h100-sxm", "A100": "a100-sxm-80gb"}
AWARE = StorageReservationPolicy.SKU_AWARE
pytestmark = pytest.mark.filterwarnings("ignore:HeuristicalStorageReservation:FutureWarning")


class Noting(IterationTimeProvider):
    """Keeps the planners that it builds, by SKU."""

    def __init__(self) -> None:
        told = {"dense_optimizer": "sgd", "precision": "fp32"}
        super().__init__(PROFILES, sharder="cost_greedy", **told)
        self.built: dict[str, IterationTimePlanner] = {}

    def build_planner(self, sku: str, **given: Any) -> IterationTimePlanner:  # noqa: ANN401
        self.built[sku] = super().build_planner(sku, **given)
        return self.built[sku]


def request(config: Mapping[str, Any] | None = None, **given: Any) -> DryRunRequest:  # noqa: ANN401
    return DryRunRequest(**{
        "model": bags(table("a", rows=200_000, dim=128), table("b", rows=50_000)),
        "sharders": list(SHARDERS),
        "world_size": 4,
        "local_world_size": 2,
        "batch_size": 64,
        "sku_list": ["H100"],
        "training_framework": next(each for each in TrainingFramework if each.value),
        "planner_config": PlannerConfig(**{"timeout_seconds": 2, **(config or {})}),
        **given,
    })


def dry_run(
    asked: ShardingPlanRequest,
) -> tuple[Mapping[str, ShardingPlanResult], Noting, PlannerSessionContext]:
    provider = Noting()
    context = PlannerSessionContext(request=asked, results={})
    executor = DefaultPlannerExecutor(provider=provider)
    return DryRunOrchestrator(executor).plan(asked, context), provider, context


def outcome(asked: ShardingPlanRequest) -> object:
    """Return all that a field of a request can change."""
    results, provider, context = dry_run(asked)
    found = {}
    for sku, planner in provider.built.items():
        solution = planner.solution
        seen = solution and (solution.workload, solution.topology, solution.torchrec_plan)
        found[sku] = (results[sku].success, seen, planner._search.time_limit)
    return found, {sku: len(space) for sku, space in context.search_space.items()}


@pytest.fixture(scope="module")
def plain() -> object:
    """What comes of a request in which nothing is set, which most fields are compared with."""
    return outcome(request())


def test_a_dry_run_plans_each_sku_by_its_profile() -> None:
    results, provider, context = dry_run(request(sku_list=["H100", "A100", "b200-sxm", "TPU"]))
    assert [result.success for result in results.values()] == [True, True, True, False]
    hardware = [provider.built[sku].solution for sku in ("H100", "A100", "b200-sxm")]
    assert [each and each.topology.hardware.name for each in hardware] == [
        "h100-sxm",
        "a100-sxm-80gb",
        "b200-sxm",
    ]
    assert context.hw_source["H100"] == "profile h100-sxm"
    refused = results["TPU"]
    assert refused.planner_error_type is PlannerErrorType.INPUT_VALIDATION
    assert "SKU `TPU` has no profile" in str(refused.planner_failure_reason)


def test_production_gets_a_plan_with_predicted_peaks_and_critical_path() -> None:
    asked, provider = request(), Noting()
    context = PlannerSessionContext(request=asked, results={})
    executor = DefaultPlannerExecutor(provider=provider)
    result = ProductionPlannerOrchestrator(executor, sku="H100").plan(asked, context)["H100"]
    solution = provider.built["H100"].solution
    assert solution is not None
    assert result.sharding_plan == solution.torchrec_plan
    memory = memory_per_rank(solution.workload, solution.topology, solution.plan)
    used = {rank for sharding in solution.plan.tables for rank in sharding.ranks}
    peak = max(memory[rank].total for rank in used)
    assert result.estimated_max_hbm_bytes == pytest.approx(peak, abs=len(solution.plan.tables))
    assert result.critical_path_ms is not None
    assert result.comms_critical_path_ms is not None
    assert 0 < result.comms_critical_path_ms < result.critical_path_ms
    assert result.critical_path_ms * MS < solution.step_time
    assert len(result.sharding_options) == 2


def test_shares_of_a_rank_add_up_to_its_own() -> None:
    wide = {"sharding_types": ["column_wise"], "min_partition": 32}
    asked = request(constraints={"a": ParameterConstraints(**wide)})
    _, provider, _ = dry_run(asked)
    planner = provider.built["H100"]
    solution = planner.solution
    assert solution is not None
    theirs = IterationTimePlanner.get_selected_options(planner)
    ours = predicted_options(theirs, solution)
    memory = memory_per_rank(solution.workload, solution.topology, solution.plan)
    for rank, own in enumerate(memory):
        shards = [shard for option in ours for shard in option.shards if shard.rank == rank]
        if shards:
            held = sum(shard.storage.hbm for shard in shards)
            assert held == pytest.approx(own.total, abs=len(shards))
    comms = {
        rank: sum(s.perf.bwd_comms for o in ours for s in o.shards if s.rank == rank)
        for rank in range(4)
    }
    assert max(comms.values()) > 0


WHOLE = {"storage_reservation_policy": AWARE, "storage_reservation_percentage": 0.3}
PAIRS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ShardingPlanRequest.model": ({}, {"model": bags(table("a"))}),
    "ShardingPlanRequest.sharders": ({}, {"sharders": list(SHARDERS[1:])}),
    "ShardingPlanRequest.world_size": ({}, {"world_size": 8}),
    "ShardingPlanRequest.local_world_size": ({}, {"local_world_size": 4}),
    "ShardingPlanRequest.batch_size": ({}, {"batch_size": 128}),
    "ShardingPlanRequest.pod_size": ({}, {"pod_size": 2}),
    "ShardingPlanRequest.storage_reservation": (
        {},
        {"storage_reservation": FixedPercentageStorageReservation(0.5)},
    ),
    "ShardingPlanRequest.constraints": (
        {},
        {"constraints": {"a": ParameterConstraints(sharding_types=["row_wise"])}},
    ),
    "ShardingPlanRequest.hbm_gb": ({}, {"hbm_gb": 40.0}),
    "ShardingPlanRequest.ddr_gb": ({}, {"ddr_gb": 40.0}),
    "ShardingPlanRequest.compute_device": ({}, {"compute_device": "cpu"}),
    "ShardingPlanRequest.planner_config": ({}, {"planner_config": PlannerConfig()}),
    "ShardingPlanRequest.capture_search_space": ({}, {"capture_search_space": True}),
    "ShardingPlanRequest.sku_list": ({}, {"sku_list": ["A100"]}),
    "ShardingPlanRequest.per_sku_overrides": (
        {},
        {"per_sku_overrides": {"H100": SkuOverride(hbm_gb=20.0)}},
    ),
    "SkuOverride.hbm_gb": (
        {"hbm_gb": 40.0},
        {"hbm_gb": 40.0, "per_sku_overrides": {"H100": SkuOverride(hbm_gb=20.0)}},
    ),
    "SkuOverride.ddr_gb": ({}, {"per_sku_overrides": {"H100": SkuOverride(ddr_gb=20.0)}}),
    "PlannerConfig.storage_reservation_policy": (
        {},
        {"config": {"storage_reservation_policy": StorageReservationPolicy.FIXED_PERCENTAGE}},
    ),
    "PlannerConfig.storage_reservation_percentage": (
        {},
        {"config": {"storage_reservation_percentage": 0.4}},
    ),
    "PlannerConfig.dense_tensor_estimate": ({}, {"config": {"dense_tensor_estimate": 3 * 2**30}}),
    "PlannerConfig.parameter_multiplier": ({}, {"config": {"parameter_multiplier": 2.0}}),
    "PlannerConfig.model_base_bytes": (
        {"config": WHOLE},
        {"config": {**WHOLE, "model_base_bytes": 9 * 2**30}},
    ),
    "PlannerConfig.home_sku": (
        {"config": WHOLE, "hbm_gb": 40.0},
        {"config": {**WHOLE, "home_sku": "A100"}, "hbm_gb": 40.0},
    ),
    "PlannerConfig.timeout_seconds": ({}, {"config": {"timeout_seconds": 3}}),
    "PlannerConfig.pipeline_type": ({}, {"config": {"pipeline_type": "train_base"}}),
}
"""By field that is heeded, requests without it and with it."""
OTHER: Mapping[str, object] = {
    "ShardingPlanRequest.cache_config": CacheConfig(ttl_seconds=5),
    "ShardingPlanRequest.training_framework": list(TrainingFramework)[-1],
    "ShardingPlanRequest.launcher_hardware": "TC_ANY",
    "ShardingPlanRequest.request_id": "mine",
    "PlannerConfig.planner_variant": PlannerVariant.LINEAR_PROGRAMMING,
    "PlannerConfig.proposer_type": "greedy",
    "PlannerConfig.partitioner_type": "greedy_perf",
    "PlannerConfig.partitioner_sort_by": "perf",
    "PlannerConfig.performance_model": "storage",
    "PlannerConfig.manifold_path": "a/b",
    "PlannerConfig.proposer_config": ProposerConfig(kind="greedy"),
}
"""By field that changes nothing, another value than its default; else a number, or the contrary."""


def walked() -> dict[str, object]:
    """Return the default of every field of the installed TorchRec's classes."""
    kinds = {
        "ShardingPlanRequest": DryRunRequest,
        "PlannerConfig": PlannerConfig,
        "SkuOverride": SkuOverride,
    }
    return {
        f"{owner}.{field.name}": field_defaults(kind).get(field.name)
        for owner, kind in kinds.items()
        for field in fields(kind)
    }


def treated(*treatments: Treatment) -> list[str]:
    return [
        name
        for name in walked()
        if REQUEST_SETTINGS[name.split(".")[0]][name.split(".")[1]].treatment in treatments
    ]


def with_other(name: str) -> DryRunRequest:
    """Return a request in which a field is not its default."""
    owner, field = name.split(".")
    default = walked()[name]
    value = OTHER.get(name, not default if isinstance(default, bool) else 7)
    if owner == "PlannerConfig":
        return request({field: value})
    if owner == "SkuOverride":
        return request(per_sku_overrides={"H100": SkuOverride(**{field: value})})
    return request(**{field: value})


def test_every_field_is_known() -> None:
    known = {f"{owner}.{name}" for owner, own in REQUEST_SETTINGS.items() for name in own}
    assert set(walked()) == known


def test_every_field_that_is_heeded_is_tried() -> None:
    assert set(PAIRS) == set(treated(Treatment.SUPPORTED, Treatment.APPROXIMATED))


@pytest.mark.parametrize("name", PAIRS)
def test_a_field_that_is_heeded_changes_something(
    name: str, plain: object, caplog: pytest.LogCaptureFixture
) -> None:
    without, with_it = PAIRS[name]
    before = outcome(request(**without)) if without else plain
    assert before != outcome(request(**with_it))
    assert f"{name}:" not in caplog.text


@pytest.mark.parametrize("name", treated(Treatment.WARNED))
def test_a_field_that_changes_nothing_is_named(
    name: str, plain: object, caplog: pytest.LogCaptureFixture
) -> None:
    assert outcome(with_other(name)) == plain
    assert f"{name}:" in caplog.text


@pytest.mark.parametrize("name", treated(Treatment.NEUTRAL))
def test_a_neutral_field_changes_nothing(
    name: str, plain: object, caplog: pytest.LogCaptureFixture
) -> None:
    assert outcome(with_other(name)) == plain
    assert f"{name}:" not in caplog.text


def test_fields_of_another_policy_are_named(caplog: pytest.LogCaptureFixture) -> None:
    dry_run(request({"model_base_bytes": 7, "home_sku": "A100"}))
    assert "PlannerConfig.home_sku: only the policy sku_aware has it" in caplog.text
    assert "PlannerConfig.model_base_bytes: only" in caplog.text


def test_the_runtime_has_a_tenth_of_what_no_share_of_the_home_sku_covers() -> None:
    # of 80 GiB where the base is given; where a share is, of what 80 GiB are more than the home's
    homes = {"SMALL": "v100-nvlink", "LARGE": "b200-sxm"}
    small = load_profile("v100-nvlink").gpu.memory_bytes
    for more, overhead in (
        ({"model_base_bytes": 7}, 8 * GIB),
        ({"home_sku": "SMALL"}, 8 * GIB - 0.1 * small),
        ({"home_sku": "LARGE"}, 0.0),
        ({}, 0.0),
    ):
        asked = request({**WHOLE, **more}, hbm_gb=80.0)
        provider = IterationTimeProvider({**PROFILES, **homes})
        made = provider.build_storage_reservation("H100", asked)
        assert made is not None
        assert made._runtime_overhead_bytes == pytest.approx(overhead, rel=1e-6)


def test_memory_that_no_request_has_is_the_profiles() -> None:
    _, provider, _ = dry_run(request())
    solution = provider.built["H100"].solution
    assert solution is not None
    assert solution.topology.hardware.gpu.memory_bytes == pytest.approx(80 * GIB, rel=0.01)


BAD: Mapping[str, tuple[dict[str, Any], str]] = {
    "a million ranks": ({"world_size": 10**6}, "world_size must be a whole number from 1 to 4,096"),
    "half a rank": ({"world_size": 4.0}, "world_size must be a whole number"),
    "no memory at all": ({"hbm_gb": float("nan")}, "hbm_gb must be a number of GiB"),
    "endless memory": ({"ddr_gb": float("inf")}, "ddr_gb must be a number of GiB"),
    "time before now": ({"config": {"timeout_seconds": -1}}, "timeout_seconds must be a number"),
    "no time": ({"config": {"timeout_seconds": float("nan")}}, "timeout_seconds must be"),
    "no pipeline": ({"config": {"pipeline_type": "x"}}, "unknown pipeline_type `x`; accepted are"),
    "no home": (
        {"config": {**WHOLE, "home_sku": "X"}},
        "home_sku `X` has no profile",
    ),
    "text for numbers": (
        {"constraints": {"a": ParameterConstraints(pooling_factors=["many"])}},
        "pooling_factors of the constraints of `a` must be a list of numbers",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_classified_as_such(name: str) -> None:
    given, message = BAD[name]
    result = dry_run(request(**given))[0]["H100"]
    assert not result.success
    assert result.planner_error_type is PlannerErrorType.INPUT_VALIDATION
    assert message in str(result.planner_failure_reason)


def test_what_fits_nowhere_is_classified_too() -> None:
    result = dry_run(request(hbm_gb=0.01, ddr_gb=0.01))[0]["H100"]
    assert result.planner_error_type is PlannerErrorType.INSUFFICIENT_STORAGE


def test_an_older_torchrec_is_told_which_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchrec.distributed.planner.provider", None)
    monkeypatch.delitem(sys.modules, "planner.torchrec.provider")
    with pytest.raises(ImportError, match=r"torchrec 1\.9\.2 has and this torchrec"):
        importlib.import_module("planner.torchrec.provider")
