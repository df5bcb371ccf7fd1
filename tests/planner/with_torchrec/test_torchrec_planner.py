"""The planner in TorchRec's seat, on one process and the meta device."""

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
import torch.distributed as dist
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torch.distributed.optim import _apply_optimizer_in_backward as apply_in_backward
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.types import CacheParams
from torchrec.modules.embedding_configs import EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingCollection
from torchrec.optim import RowWiseAdagrad
from torchrec.types import DataType as TorchRecType
from torchrec_cases import (
    META,
    SHARDERS,
    TOLD,
    TYPES,
    AnySharder,
    bags,
    cases,
    constrained,
    embedding_bags,
    features,
    gpus,
    of_types,
    on_ranks,
    solved,
    table,
)

from costmodel.domain.plan import ShardingType
from costmodel.domain.validity import check_plan
from costmodel.domain.workload import DataType, Optimizer, Pipeline, Pooling
from costmodel.engine.objective import Objective
from costmodel.inputs.distribution import ReuseHistogram
from planner.torchrec import (
    IterationTimePerfModel,
    IterationTimePlanner,
    from_torchrec,
    to_torchrec,
)


def test_several_modules_and_tables_of_one_name_are_told_apart() -> None:
    model = torch.nn.ModuleDict({
        "pooled": bags(table("a"), table("b", data_type=TorchRecType.FP16)),
        "sequence": EmbeddingCollection(
            tables=[
                EmbeddingConfig(
                    name="a", num_embeddings=500, embedding_dim=32, feature_names=["f", "g"]
                )
            ],
            device=META,
        ),
    })
    planner = IterationTimePlanner(gpus(), 64, timeout_seconds=0.5)
    plan = planner.plan(model, SHARDERS)
    assert {path: set(tables) for path, tables in plan.plan.items()} == {
        "pooled": {"a", "b"},
        "sequence": {"a"},
    }
    workload = solved(planner).workload
    assert {each.name for each in workload.tables} == {"pooled.a", "b", "sequence.a"}
    assert workload.table("sequence.a").pooling is Pooling.NONE
    assert workload.table("sequence.a").pooling_factor == 2  # one id for each of two features
    assert workload.table("b").data_type is DataType.FP16


@pytest.mark.parametrize(
    ("name", "said"),
    [("NFP8", None), ("INT8", "int8 cannot be trained"), ("BF16", "bf16 cannot be trained")],
)
def test_weights_that_fbgemm_does_not_train_are_warned_of(
    name: str, said: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    if not hasattr(TorchRecType, name):
        pytest.skip(f"the installed torchrec has no {name}")
    planner = IterationTimePlanner(
        gpus(), 64, hardware="h100-sxm", timeout_seconds=0.1, replicate=False, **TOLD
    )
    planner.plan(bags(table("a", data_type=TorchRecType[name]), table("b")), SHARDERS)
    told = [each.getMessage() for each in caplog.records if each.name.startswith("planner.")]
    assert len(told) == bool(said)
    assert all(f"weights of `a`: {said}" in each for each in told)


def test_the_optimizer_is_read_off_parameters_or_fused_parameters() -> None:
    module = bags(table("a"))
    planner = IterationTimePlanner(gpus(), 64, timeout_seconds=0.1)
    planner.plan(module, SHARDERS)
    assert solved(planner).workload.optimizer is Optimizer.SGD
    fused = EmbeddingBagCollectionSharder(fused_params={"optimizer": EmbOptimType.ADAM})
    planner.plan(module, [fused])
    assert solved(planner).workload.optimizer is Optimizer.ADAM
    apply_in_backward(RowWiseAdagrad, module.parameters(), {"lr": 0.1})
    planner.plan(module, SHARDERS)
    assert solved(planner).workload.optimizer is Optimizer.ROWWISE_ADAGRAD


def test_constraints_decide_pooling_types_kernels_and_widths() -> None:
    constraints = {
        "a": ParameterConstraints(
            sharding_types=["column_wise"],
            compute_kernels=["fused_uvm_caching"],
            min_partition=16,
            pooling_factors=[3.0, 4.0],
            num_poolings=[1.0, 2.0],
            cache_params=CacheParams(load_factor=0.3),
            enforce_hbm=True,
        )
    }
    module = bags(table("a", feature_names=["f", "g"]), is_weighted=True)
    planner = IterationTimePlanner(gpus(), 64, constraints=constraints, timeout_seconds=0.2)
    sharding = planner.plan(module, SHARDERS).plan[""]["a"]
    assert sharding.sharding_type == "column_wise"
    assert sharding.compute_kernel == "fused_uvm_caching"
    assert sharding.enforce_hbm
    assert sharding.cache_params.load_factor == 0.3
    assert min(shard.shard_sizes[1] for shard in sharding.sharding_spec.shards) >= 16
    read = solved(planner).workload.table("a")
    assert read.pooling_factor == 11  # 3 + 4 x 2
    assert read.cache_load_factor == 0.3
    assert read.weighted


def test_sample_batches_say_how_tables_are_read() -> None:
    sample = features(0, 50)
    planner = IterationTimePlanner(gpus(), 50, sample_batches=[sample], timeout_seconds=0.1)
    planner.plan(embedding_bags(), SHARDERS)
    read = solved(planner).workload.table("t1")
    ids = sample["f1"].values()
    assert read.pooling_factor == pytest.approx(len(ids) / 50)
    assert read.pooling_std == pytest.approx(
        float(sample["f1"].lengths().double().std(correction=0))
    )
    assert isinstance(read.inputs, ReuseHistogram)
    assert read.inputs.num_lookups == len(ids)
    distinct = len(ids.unique())
    assert read.inputs.mean_reuse == pytest.approx(len(ids) / distinct, rel=0.2)


def test_only_what_the_sharders_offer_on_the_device_is_chosen() -> None:
    planner = IterationTimePlanner(on_ranks(2, 2), 64, timeout_seconds=0.5)
    planner.plan(embedding_bags(), SHARDERS)
    offered = set(SHARDERS[0].sharding_types("cpu"))
    for read in solved(planner).workload.tables:
        assert set(read.sharding_types) <= offered
        assert set(read.compute_kernels) <= {"dense", "fused"}


def test_unpooled_tables_are_not_replicated_on_cpu_unasked() -> None:
    config = EmbeddingConfig(name="s", num_embeddings=50, embedding_dim=16, feature_names=["f"])
    module = EmbeddingCollection(tables=[config], device=META)
    for device, asked, replicated in (
        ("cpu", [], False),
        ("cpu", ["data_parallel"], True),
        ("cuda", [], True),
    ):
        constraints = {"s": ParameterConstraints(sharding_types=asked)} if asked else {}
        topology = on_ranks(2, 2, device)
        planner = IterationTimePlanner(topology, 64, constraints=constraints, timeout_seconds=0.1)
        planner.plan(module, SHARDERS)
        kinds = solved(planner).workload.table("s").sharding_types
        assert (ShardingType.DATA_PARALLEL in kinds) is replicated


def test_grid_shard_has_to_be_asked_for() -> None:
    planner = IterationTimePlanner(on_ranks(2, 2), 64, timeout_seconds=0.1)
    planner.plan(embedding_bags(), [AnySharder()])
    for read in solved(planner).workload.tables:
        assert ShardingType.GRID_SHARD not in read.sharding_types


@pytest.mark.parametrize("local_world_size", [2, 4])
def test_conversion_loses_nothing_in_either_direction(local_world_size: int) -> None:
    seen = set()
    for _, constraints in cases():
        planner = IterationTimePlanner(
            on_ranks(4, local_world_size), 64, constraints=constraints, timeout_seconds=0.1
        )
        plan = planner.plan(embedding_bags(), [AnySharder()])
        found = solved(planner)
        check_plan(found.workload, found.topology, found.plan)
        back = from_torchrec(plan, found.locations, found.workload, found.topology)
        assert back == found.plan
        again = to_torchrec(back, found.locations, compute_device="cpu", constraints=constraints)
        assert {p: dict(m) for p, m in again.plan.items()} == {
            p: dict(m) for p, m in plan.plan.items()
        }
        seen |= {each.sharding_type for each in back.tables}
    assert seen == set(TYPES)


def test_caches_of_a_prefetching_pipeline_are_filled_ahead() -> None:
    constraints = constrained(("table_wise", "fused_uvm_caching"), ("row_wise", "fused"))
    constraints["t2"].cache_params = CacheParams(load_factor=0.5, prefetch_pipeline=False)

    def prefetches(pipeline: Pipeline) -> list[bool | None]:
        planner = IterationTimePlanner(
            on_ranks(2, 2, "cuda"), 64, constraints=constraints, timeout_seconds=0.1,
            pipeline=pipeline,
        )  # fmt: skip
        plan = planner.plan(embedding_bags(), [AnySharder()])
        params = [plan.plan[""][name].cache_params for name in ("t0", "t1", "t2")]
        return [each.prefetch_pipeline if each else None for each in params]

    assert prefetches(Pipeline.PREFETCH) == [True, None, False]
    assert prefetches(Pipeline.SPARSE_DIST) == [None, None, False]
    assert constraints["t0"].cache_params is None
    constraints["t2"].cache_params.prefetch_pipeline = True
    assert prefetches(Pipeline.SPARSE_DIST) == [True, None, True]


def test_torchrecs_own_plan_comes_back_as_it_was() -> None:
    module, topology = embedding_bags(), gpus(4)
    planner = IterationTimePlanner(topology, 64, timeout_seconds=0.1)
    planner.plan(module, SHARDERS)
    found = solved(planner)
    constraints = of_types(**{f"t{i}": kind for i, kind in enumerate(TYPES)})
    theirs = EmbeddingShardingPlanner(
        topology=topology,
        batch_size=64,
        constraints=constraints,
        storage_reservation=FixedPercentageStorageReservation(0.1),
        debug=False,
    ).plan(module, SHARDERS)
    plan = from_torchrec(theirs, found.locations, found.workload, found.topology)
    back = to_torchrec(plan, found.locations)
    for name, sharding in theirs.plan[""].items():
        assert back.plan[""][name].sharding_type == sharding.sharding_type
        assert back.plan[""][name].compute_kernel == sharding.compute_kernel
        assert back.plan[""][name].ranks == sharding.ranks
        assert str(back.plan[""][name].sharding_spec) == str(sharding.sharding_spec)
    assert Objective(found.workload, found.topology).step_time(plan) > 0


@pytest.mark.slow
def test_torchrecs_proposers_can_use_our_objective() -> None:
    module, topology = bags(*(table(f"t{i}", rows=10 ** (3 + i % 3)) for i in range(6))), gpus(4)

    def step_time(**options: object) -> float:
        made = EmbeddingShardingPlanner(
            topology=topology,
            batch_size=512,
            storage_reservation=FixedPercentageStorageReservation(0.1),
            debug=False,
            **options,
        ).plan(module, SHARDERS)
        ours = IterationTimePlanner(topology, 512, timeout_seconds=0.1)
        ours.plan(module, SHARDERS)
        found = solved(ours)
        plan = from_torchrec(made, found.locations, found.workload, found.topology)
        return Objective(found.workload, found.topology).step_time(plan)

    assert step_time(performance_model=IterationTimePerfModel(topology)) <= step_time()


@pytest.mark.parametrize(
    ("device", "gpu", "profile"),
    [
        ("cuda", "NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("cuda", "Tesla V100-SXM2-16GB", "v100-nvlink"),
        ("cuda", "NVIDIA GeForce RTX 4090", "h100-sxm"),
        ("cuda", None, "h100-sxm"),
        ("cpu", "NVIDIA H200", "cpu-gloo"),
    ],
)
def test_the_hardware_is_that_of_the_gpu_here_or_said_to_be_assumed(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    device: str,
    gpu: str | None,
    profile: str,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu is not None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: gpu)
    planner = IterationTimePlanner(on_ranks(2, 2, device), 64, timeout_seconds=0.1)
    planner.plan(bags(table("a")), SHARDERS)
    assert solved(planner).hardware == profile
    assert ("no hardware given" in caplog.text) is (profile in {"h100-sxm", "cpu-gloo"})


@pytest.mark.parametrize("joined", [False, True])
def test_one_rank_of_a_job_says_what_it_assumes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, joined: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    if joined:  # the group counts, whatever the launcher says
        monkeypatch.setattr(dist, "is_initialized", lambda: True)
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(1 - rank if joined else rank))
        monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
        caplog.clear()
        IterationTimePlanner(gpus(), 64)
        assert ("no hardware given" in caplog.text) is (rank == 0)


def test_a_plan_of_ones_own_in_a_job_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    planner = IterationTimePlanner(gpus(), 64, timeout_seconds=0.1)
    planner.plan(bags(table("a")), SHARDERS)
    assert "collective_plan" not in caplog.text
    for name, value in (("is_initialized", True), ("get_world_size", 2), ("get_rank", 1)):
        monkeypatch.setattr(dist, name, lambda value=value: value)
    planner.plan(bags(table("a")), SHARDERS)
    assert "plan() on rank 1 of 2: ranks may find different plans" in caplog.text


@pytest.mark.parametrize("by_sharder", [False, True])
def test_replicated_tables_whose_optimizer_is_in_the_backward_are_told(
    caplog: pytest.LogCaptureFixture, *, by_sharder: bool
) -> None:
    module = bags(table("a"), table("b"), table("c"))
    fused = {"optimizer": EmbOptimType.EXACT_ADAGRAD} if by_sharder else None
    if not by_sharder:
        apply_in_backward(torch.optim.Adagrad, module.parameters(), {"lr": 0.1})
    kinds = of_types(a="data_parallel", b="table_wise", c="data_parallel")
    planner = IterationTimePlanner(gpus(), 64, constraints=kinds, sharder="cost_greedy", **TOLD)
    planner.plan(module, [EmbeddingBagCollectionSharder(fused_params=fused)])
    (told,) = (r.getMessage() for r in caplog.records if "optimizer" in r.getMessage())
    assert told.startswith("the optimizer in the backward does not update 2 tables (.a, .c)")
    assert "put their parameters into the training loop's dense optimizer" in told
    assert "sharding_types without data_parallel" in told


def test_replicated_tables_of_the_dense_optimizer_are_not(caplog: pytest.LogCaptureFixture) -> None:
    kinds = of_types(a="data_parallel")
    planner = IterationTimePlanner(gpus(), 64, constraints=kinds, sharder="cost_greedy")
    planner.plan(bags(table("a")), SHARDERS)
    assert "replicated" not in caplog.text
