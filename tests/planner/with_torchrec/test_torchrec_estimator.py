"""TorchRec's own planner, whose shards' times are ours."""

import importlib
import sys

import pytest

pytest.importorskip(
    "torchrec.distributed.planner.estimator", reason="torchrec has no package of estimators"
)

from torch import nn
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.estimator import (
    EmbeddingPerfEstimatorConfig,
    supported_sharding_types,
)
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import (
    CacheParams,
    ParameterConstraints,
    Perf,
    PlannerError,
    ShardingOption,
)
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec_cases import SHARDERS, bags, beside_fused, gpus, table

from costmodel.base.units import MS
from costmodel.domain.plan import ShardingType
from costmodel.engine.objective import Objective
from costmodel.step.shard_times import ShardTimer
from planner.torchrec import IterationTimePlanner
from planner.torchrec.estimator import IterationTimeEstimator
from planner.torchrec.plan_conversion import from_torchrec
from sharders.problem.options import TableOption, make_sharding

BATCH = 512
IDS = {"a": ParameterConstraints(pooling_factors=[40.0])}


def model() -> nn.Module:
    return bags(table("a", rows=200_000, dim=128), table("b", rows=50_000))


def enumerator(
    estimator: IterationTimeEstimator | None,
    constraints: dict[str, ParameterConstraints] | None = IDS,
    batch_size: int = BATCH,
) -> EmbeddingEnumerator:
    memory = EmbeddingStorageEstimator(topology=gpus(4), constraints=constraints)
    return EmbeddingEnumerator(
        topology=gpus(4),
        batch_size=batch_size,
        constraints=constraints,
        estimator=None if estimator is None else [estimator, memory],
    )


def estimated(
    module: nn.Module | None = None, *, ours: bool = True, **given: object
) -> dict[tuple[str, str, str], ShardingOption]:
    """Return the options of a model by table, sharding type and kernel."""
    constraints = given.pop("constraints", IDS)
    estimator = IterationTimeEstimator(gpus(4), constraints, hardware="h100-sxm", **given)
    made = enumerator(estimator if ours else None, constraints=constraints)
    options = made.enumerate(module or model(), get_default_sharders())
    return {(each.fqn, each.sharding_type, each.compute_kernel): each for each in options}


def test_shards_have_the_seconds_of_the_cost_model() -> None:
    planner = IterationTimePlanner(
        gpus(4), BATCH, constraints=IDS, hardware="h100-sxm", timeout_seconds=0.1
    )
    planner.plan(model(), list(SHARDERS))
    solution = planner.solution
    assert solution is not None
    for kind in (ShardingType.TABLE_WISE, ShardingType.ROW_WISE):
        option = TableOption(sharding_type=kind)
        own = solution.workload.table("a")
        sharding = make_sharding(own, solution.topology, option, [0] * option.num_ranks)
        (times,) = ShardTimer(solution.workload, solution.topology).of([sharding])
        shards = estimated()[".a", kind.value, "fused"].shards
        assert [shard.perf.fwd_compute * MS for shard in shards] == pytest.approx([
            each.forward for each in times
        ])
        assert [shard.perf.total * MS for shard in shards] == pytest.approx([
            each.load + each.input_exchange for each in times
        ])
        assert all(shard.perf.fwd_comms > shard.perf.input_dist_comms > 0 for shard in shards)
        assert all(shard.storage.hbm > 0 for shard in shards)


def test_constraints_say_how_often_a_table_is_read() -> None:
    key = ".a", "table_wise", "fused"
    often, once = (
        estimated(constraints=each)[key].shards[0].perf.fwd_compute for each in (IDS, None)
    )
    assert often > 3 * once


def test_rows_are_prefetched_only_in_its_pipeline() -> None:
    cached = {
        "a": ParameterConstraints(
            compute_kernels=["fused_uvm_caching"], cache_params=CacheParams(load_factor=0.1)
        )
    }
    key = ".a", "table_wise", "fused_uvm_caching"
    plain, prefetching = (
        estimated(constraints=cached, pipeline=each)[key].shards[0].perf
        for each in ("sparse_dist", "prefetch_sparse_dist")
    )
    assert plain.prefetch_compute == 0
    assert prefetching.prefetch_compute > 0


def test_what_no_cost_model_knows_keeps_torchrecs_own_estimate() -> None:
    found, theirs = (estimated(beside_fused(), ours=each, constraints=None) for each in (1, 0))
    assert set(found) == set(theirs)
    same = {key[0] for key in found if found[key].shards[0].perf == theirs[key].shards[0].perf}
    assert same == {"fused.b"}


def test_options_are_estimated_again_with_another_share_of_rows_cached() -> None:
    estimator = IterationTimeEstimator(gpus(4), IDS, hardware="h100-sxm")
    made = enumerator(estimator)
    options = made.enumerate(model(), list(SHARDERS))
    option = next(each for each in options if each.compute_kernel == "fused_uvm_caching")
    before = option.shards[0].perf.total
    option.cache_params = CacheParams(load_factor=0.9)
    made.populate_estimates([option])
    assert option.shards[0].perf.total < before


def test_a_configuration_adjusts_times_and_says_which_types_there_are() -> None:
    @supported_sharding_types("table_wise")
    class Doubling(EmbeddingPerfEstimatorConfig):
        """Knows one sharding type, on hardware half as fast."""

        def post_process_perfs(self, shard_perfs: list[Perf], **_: object) -> list[Perf]:
            return [each + each for each in shard_perfs]

    whole = {
        name: ParameterConstraints(sharding_types=["table_wise"], compute_kernels=["fused"])
        for name in "ab"
    }
    plain, slow = (
        estimated(constraints=whole, config=each)[".a", "table_wise", "fused"].shards[0].perf
        for each in (None, Doubling())
    )
    assert slow.total == pytest.approx(2 * plain.total)
    with pytest.raises(ValueError, match="not supported by Doubling"):
        estimated(config=Doubling())


def test_torchrecs_planner_finds_a_better_plan_with_it() -> None:
    module = bags(*(table(f"t{i}", rows=10 ** (4 + i % 3), dim=32 << i % 4) for i in range(13)))
    read = {f"t{i}": ParameterConstraints(pooling_factors=[(1.0, 60.0)[i % 2]]) for i in range(13)}
    ours = IterationTimePlanner(
        gpus(4), 4096, constraints=read, hardware="h100-sxm", timeout_seconds=0.1
    )
    ours.plan(module, list(SHARDERS))
    solution = ours.solution
    assert solution is not None

    def step_time(estimator: IterationTimeEstimator | None) -> float:
        planner = EmbeddingShardingPlanner(
            topology=gpus(4),
            constraints=read,
            batch_size=4096,
            enumerator=enumerator(estimator, constraints=read, batch_size=4096),
            storage_reservation=FixedPercentageStorageReservation(0.1),
            debug=False,
        )
        plan = planner.plan(module, list(SHARDERS))
        found = from_torchrec(plan, solution.locations, solution.workload, solution.topology)
        return Objective(solution.workload, solution.topology).step_time(found)

    assert step_time(IterationTimeEstimator(gpus(4), read, hardware="h100-sxm")) < step_time(None)


def test_bad_arguments_are_refused_in_its_terms() -> None:
    with pytest.raises(PlannerError, match="hardware must be a HardwareProfile"):
        IterationTimeEstimator(gpus(4), hardware=3)  # type: ignore[arg-type]
    with pytest.raises(PlannerError, match="unknown pipeline `semi`"):
        IterationTimeEstimator(gpus(4), hardware="h100-sxm", pipeline="semi")


def test_an_older_torchrec_is_told_which_has_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchrec.distributed.planner.estimator", None)
    monkeypatch.delitem(sys.modules, "planner.torchrec.estimator")
    with pytest.raises(ImportError, match=r"torchrec 1\.9\.2 has and this torchrec"):
        importlib.import_module("planner.torchrec.estimator")
