"""Nothing that TorchRec's planner is told is ignored in silence: every field is tried."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    SplitTableBatchedEmbeddingBagsCodegen,
)
from torchrec.distributed import train_pipeline
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.fbgemm_qcomm_codec import (
    CommType,
    QCommsConfig,
    get_qcomm_codecs_registry,
)
from torchrec.distributed.fp_embeddingbag import FeatureProcessedEmbeddingBagCollectionSharder
from torchrec.distributed.mc_embedding import ManagedCollisionEmbeddingCollectionSharder
from torchrec.distributed.mc_embeddingbag import ManagedCollisionEmbeddingBagCollectionSharder
from torchrec.distributed.mc_modules import ManagedCollisionCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import (
    BasicCommsBandwidths,
    CustomTopologyData,
    ParameterConstraints,
    ShardingOption,
    Topology,
)
from torchrec.distributed.quant_embeddingbag import QuantEmbeddingBagCollectionSharder
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import CacheParams, KeyValueParams
from torchrec.inference.modules import quantize_embeddings
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection
from torchrec.types import DataType
from torchrec_cases import (
    GIB,
    META,
    QUIET,
    SHARDERS,
    TOLD,
    bags,
    beside_fused,
    managed_collision,
    managed_collision_sequence,
    table,
)

from planner.torchrec import IterationTimePlanner, solving
from planner.torchrec.setting_treatments import (
    SETTINGS,
    Treatment,
    argument_defaults,
    field_defaults,
    unheeded_fields,
)

TRAINING_SHARDERS = [each for each in get_default_sharders() if "Quant" not in type(each).__name__]
ACCUMULATION = [
    each for each in [getattr(train_pipeline, "GradientAccumulationConfig", None)] if each
]
"""A version of torchrec may have none."""
HEEDED = (Treatment.SUPPORTED, Treatment.APPROXIMATED)


def bags_of_two() -> torch.nn.Module:
    return pooled_tables()


@dataclasses.dataclass
class Case:
    """What a script tells the planner."""

    planner: dict[str, Any] = dataclasses.field(default_factory=dict)
    topology: dict[str, Any] = dataclasses.field(default_factory=dict)
    constraint: dict[str, Any] = dataclasses.field(default_factory=dict)
    sharders: tuple[object, ...] = SHARDERS
    model: Callable[[], torch.nn.Module] = bags_of_two
    calls: list[str] = dataclasses.field(default_factory=list)
    """What the planner called of the case's own."""

    def outcome(self, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
        """Return all that a setting can change: what is planned, seen, searched and called."""
        limits: list[float] = []
        search = solving.run_with_headroom

        def noted(names: Any, problem: Any, given: Any, *, fuller: bool) -> Any:  # noqa: ANN401
            limits.append(given.time_limit)
            return search(names, problem, given, fuller=fuller)

        planner = IterationTimePlanner(**{
            "topology": Topology(**{
                "world_size": 4,
                "local_world_size": 2,
                "compute_device": "cuda",
                **QUIET,
                **self.topology,
            }),
            "batch_size": 64,
            "hardware": "h100-sxm",
            "sharder": "cost_greedy",
            "constraints": {"a": ParameterConstraints(**self.constraint)},
            **self.planner,
        })
        with monkeypatch.context() as patched:
            patched.setattr(solving, "run_with_headroom", noted)
            plan = planner.plan(self.model(), self.sharders)
        found = planner.solution
        seen = (found.workload, found.topology, found.other_time) if found else ()
        return seen, plan, limits, self.calls


@pytest.fixture(scope="module")
def plain() -> tuple[object, ...]:
    """What comes of a script that sets nothing, which most settings are compared with."""
    with pytest.MonkeyPatch.context() as patched:
        return Case().outcome(patched)


def pooled_tables(name: str = "a", **config: object) -> torch.nn.Module:
    return bags(table(name, **config), table("b"))


def unpooled_tables(**config: object) -> torch.nn.Module:
    given = {"name": "a", "num_embeddings": 1000, "embedding_dim": 64, "feature_names": ["f"]}
    sequence = EmbeddingCollection(tables=[EmbeddingConfig(**{**given, **config})], device=META)
    return torch.nn.ModuleDict({"rest": bags(table("b")), "sequence": sequence})


class Told:
    """Statistics that note that they were told."""

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def log(self, **given: object) -> None:
        assert given["best_plan"]
        self.calls.append("told")


class Estimating(EmbeddingEnumerator):  # type: ignore[misc]
    """An enumerator that notes that it was asked for estimates."""

    def __init__(self, calls: list[str]) -> None:
        super().__init__(Topology(world_size=4, compute_device="cuda"), 64)
        self.calls = calls

    def populate_estimates(self, sharding_options: list[ShardingOption]) -> None:
        self.calls.append("estimated")
        super().populate_estimates(sharding_options)


class Loader:
    """A plan loader that has no plan."""

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def plan_context_hash(self) -> None:
        """Return that the context is not known."""

    def load(self) -> None:
        self.calls.append("loaded")


def calling(name: str, make: Callable[[list[str]], object], **more: object) -> Case:
    calls: list[str] = []
    return Case(planner={name: make(calls), **more}, calls=calls)


def noting(calls: list[str]) -> list[Callable[[list[ShardingOption]], list[ShardingOption]]]:
    def callback(options: list[ShardingOption]) -> list[ShardingOption]:
        calls.append("called back")
        return options

    return [callback]


def pooled(**given: object) -> Case:
    return Case(sharders=(EmbeddingBagCollectionSharder(**given),))


def unpooled(**given: object) -> Case:
    sharders = (EmbeddingBagCollectionSharder(), EmbeddingCollectionSharder(**given))
    return Case(sharders=sharders, model=unpooled_tables)


def processed(**given: object) -> Case:
    def model() -> torch.nn.Module:
        return FeatureProcessedEmbeddingBagCollection(
            bags(table("a"), is_weighted=True),
            PositionWeightedModuleCollection({"f_a": 10}, device=META),
        )

    return Case(sharders=(FeatureProcessedEmbeddingBagCollectionSharder(**given),), model=model)


def colliding(**given: object) -> Case:
    sharders = {
        "e_sharder": EmbeddingBagCollectionSharder(),
        "mc_sharder": ManagedCollisionCollectionSharder(),
    }
    sharder = ManagedCollisionEmbeddingBagCollectionSharder(*{**sharders, **given}.values())
    return Case(sharders=(sharder,), model=managed_collision)


def colliding_sequence(**given: object) -> Case:
    sharders = {
        "ec_sharder": EmbeddingCollectionSharder(),
        "mc_sharder": ManagedCollisionCollectionSharder(),
    }
    sharder = ManagedCollisionEmbeddingCollectionSharder(*{**sharders, **given}.values())
    return Case(sharders=(sharder,), model=managed_collision_sequence)


class ByTables(ManagedCollisionCollectionSharder):  # type: ignore[misc]
    """Offers whole tables."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        del compute_device_type
        return ["table_wise"]


def caching(**given: object) -> Case:
    kernels = {"compute_kernels": ["fused_uvm_caching"]}
    return Case(constraint={**kernels, "cache_params": CacheParams(**given)})


def weighing(**given: object) -> Case:
    return Case(constraint={"pooling_factors": [3.0], **given})


def key_value(**given: object) -> Case:
    kinds = {"compute_kernels": ["key_value"], "sharding_types": ["row_wise"]}
    return Case(constraint={**kinds, "key_value_params": KeyValueParams(**given)})


def virtual(**given: object) -> Case:
    kinds = {"compute_kernels": ["dram_virtual_table"], "sharding_types": ["row_wise"]}
    config = {"total_num_buckets": 8, "use_virtual_table": True, **given}
    return Case(constraint=kinds, model=lambda: unpooled_tables(**config))


def fused(**given: object) -> EmbeddingBagCollectionSharder:
    return EmbeddingBagCollectionSharder(fused_params=given)


CODECS = get_qcomm_codecs_registry(
    QCommsConfig(forward_precision=CommType.FP16, backward_precision=CommType.BF16)
)
UNEVEN = CustomTopologyData(data={"hbm_cap": [GIB, GIB, GIB, 2 * GIB]}, world_size=4)
Pair = tuple[Case, Case]
PAIRS: Mapping[str, Mapping[str, Pair]] = {
    "EmbeddingShardingPlanner": {
        "topology": (Case(), Case(topology={"world_size": 8})),
        "batch_size": (Case(), Case(planner={"batch_size": 128})),
        "storage_reservation": (
            Case(),
            Case(planner={"storage_reservation": FixedPercentageStorageReservation(0.5)}),
        ),
        "constraints": (
            Case(),
            Case(
                planner={"constraints": {".a": ParameterConstraints(sharding_types=["row_wise"])}}
            ),
        ),
        "timeout_seconds": (Case(), Case(planner={"timeout_seconds": 3.0})),
        "stats": (Case(), calling("stats", Told)),
        "callbacks": (Case(), calling("callbacks", noting)),
        "plan_loader": (Case(), calling("plan_loader", Loader)),
        "enumerator": (Case(), calling("enumerator", Estimating, stats=Told([]))),
    },
    "Topology": {
        "world_size": (Case(), Case(topology={"world_size": 8})),
        "local_world_size": (Case(), Case(topology={"local_world_size": 4})),
        "pod_size": (Case(), Case(topology={"pod_size": 2})),
        "compute_device": (
            Case(),
            Case(topology={"compute_device": "cpu"}, planner={"hardware": "cpu-gloo"}),
        ),
        "hbm_cap": (Case(), Case(topology={"hbm_cap": GIB})),
        "ddr_cap": (Case(), Case(topology={"ddr_cap": GIB})),
        "custom_topology_data": (Case(), Case(topology={"custom_topology_data": UNEVEN})),
    },
    "ParameterConstraints": {
        "sharding_types": (Case(), Case(constraint={"sharding_types": ["row_wise"]})),
        "compute_kernels": (Case(), Case(constraint={"compute_kernels": ["fused_uvm"]})),
        "min_partition": (Case(), Case(constraint={"min_partition": 32})),
        "pooling_factors": (Case(), weighing()),
        "num_poolings": (weighing(), weighing(num_poolings=[2.0])),
        "batch_sizes": (weighing(), weighing(batch_sizes=[32])),
        "is_weighted": (Case(), Case(constraint={"is_weighted": True})),
        "cache_params": (caching(), caching(load_factor=0.5)),
        "output_dtype": (Case(), Case(constraint={"output_dtype": DataType.FP16})),
        "device_group": (Case(), Case(constraint={"device_group": "cpu"})),
        "key_value_params": (key_value(), key_value(l2_cache_size=2)),
    },
    "CacheParams": {
        "load_factor": (caching(), caching(load_factor=0.5)),
        "prefetch_pipeline": (
            caching(load_factor=1e-4),
            caching(load_factor=1e-4, prefetch_pipeline=True),
        ),
    },
    "KeyValueParams": {
        name: (key_value(), key_value(**{name: not default}))
        for name, default in field_defaults(KeyValueParams).items()
    },
    "sharder": {
        "fused_params": (pooled(), pooled(fused_params={"cache_load_factor": 0.5})),
        "qcomm_codecs_registry": (pooled(), pooled(qcomm_codecs_registry=CODECS)),
        "use_index_dedup": (unpooled(), unpooled(use_index_dedup=True)),
        "ebc_sharder": (processed(), processed(ebc_sharder=fused(cache_load_factor=0.5))),
        "mc_sharder": (colliding(), colliding(mc_sharder=ByTables())),
        "ec_sharder": (
            colliding_sequence(),
            colliding_sequence(ec_sharder=EmbeddingCollectionSharder(use_index_dedup=True)),
        ),
    },
    "fused_params": {
        "optimizer": (pooled(), pooled(fused_params={"optimizer": EmbOptimType.ADAM})),
        "cache_load_factor": (pooled(), pooled(fused_params={"cache_load_factor": 0.5})),
        "learning_rate": (pooled(), pooled(fused_params={"learning_rate": 0.0})),
        "output_dtype": (pooled(), pooled(fused_params={"output_dtype": SparseType.FP16})),
    },
    "table": {
        name: (Case(), Case(model=lambda change=change: pooled_tables(**change)))
        for name, change in {
            "name": {"name": "c"},
            "num_embeddings": {"rows": 2000},
            "embedding_dim": {"dim": 128},
            "data_type": {"data_type": DataType.FP16},
            "feature_names": {"feature_names": ["x", "y"]},
            "pooling": {"pooling": PoolingType.MEAN},
            "stash_weights": {"stash_weights": True},
        }.items()
    }
    | {
        "use_virtual_table": (
            Case(model=unpooled_tables),
            virtual(),
        ),
        "total_num_buckets": (virtual(), virtual(total_num_buckets=10)),
    },
    "GradientAccumulationConfig": {
        "num_steps": (Case(), Case(planner={"gradient_accumulation_steps": 2})),
    },
}
"""For every setting that is heeded: what it is compared with, and it."""


def installed() -> Iterator[tuple[str, str]]:
    """Yield every setting of the installed TorchRec's classes."""
    callables: dict[str, list[Any]] = {
        "EmbeddingShardingPlanner": [EmbeddingShardingPlanner.__init__],
        "Topology": [Topology.__init__],
        "sharder": [type(sharder).__init__ for sharder in TRAINING_SHARDERS],
        "fused_params": [SplitTableBatchedEmbeddingBagsCodegen.__init__],
    }
    for owner, functions in callables.items():
        yield from ((owner, name) for each in functions for name in argument_defaults(each))
    records = {
        "ParameterConstraints": [ParameterConstraints],
        "CacheParams": [CacheParams],
        "KeyValueParams": [KeyValueParams],
        "table": [EmbeddingBagConfig, EmbeddingConfig],
        "GradientAccumulationConfig": ACCUMULATION,
    }
    for owner, kinds in records.items():
        yield from ((owner, field.name) for each in kinds for field in dataclasses.fields(each))


def named(treatment: Treatment) -> dict[str, list[str]]:
    there = set(installed())
    return {
        owner: [n for n, each in own.items() if each.treatment is treatment and (owner, n) in there]
        for owner, own in SETTINGS.items()
    }


def test_every_setting_of_the_installed_torchrec_is_known() -> None:
    unknown = {(owner, name) for owner, name in installed() if name not in SETTINGS[owner]}
    assert not unknown, "say in planner.torchrec.setting_treatments what becomes of them"


def test_every_setting_that_is_heeded_is_tried() -> None:
    heeded = {
        (o, n) for treatment in HEEDED for o, names in named(treatment).items() for n in names
    }
    tried = {(owner, name) for owner, own in PAIRS.items() for name in own}
    assert heeded == tried & set(installed())


@pytest.mark.parametrize(
    ("owner", "name"), [(owner, name) for owner, own in PAIRS.items() for name in own]
)
def test_a_setting_that_is_heeded_changes_something(
    owner: str,
    name: str,
    plain: tuple[object, ...],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if (owner, name) not in set(installed()):
        pytest.skip("the installed torchrec has no such setting")
    without, with_it = PAIRS[owner][name]
    before = plain if without == Case() else without.outcome(monkeypatch)
    assert before != with_it.outcome(monkeypatch)
    assert f"{owner}.{name}:" not in caplog.text


def other(default: object) -> object:
    """Return something else than a default, of its kind."""
    if isinstance(default, bool) or not isinstance(default, int | float):
        return not default
    return 2 * default + 1


def set_at_once(owner: str, names: list[str]) -> Case:
    """Return a case where all of these settings are set."""
    made: Case
    if owner == "EmbeddingShardingPlanner":
        made = Case(planner={name: object() for name in names if name != "debug"})
        made.planner |= {"debug": False} if "debug" in names else {}
    elif owner == "Topology":
        defaults = argument_defaults(Topology.__init__)
        values = {name: other(defaults[name]) for name in names}
        special = {"ssd_cap": GIB, "generalized_comms_bandwidths": None}
        made = Case(topology={**values, **{n: special[n] for n in names if n in special}})
    elif owner == "ParameterConstraints":
        made = Case(constraint=dict.fromkeys(names, True))
    elif owner == "CacheParams":
        made = caching(**dict.fromkeys(names, 1))
    elif owner == "sharder":
        made = pooled(**{name: ["a"] for name in names if name.startswith("sharded_module")})
    elif owner == "GradientAccumulationConfig":
        made = Case()  # what a script does not tell the planner
    elif owner == "fused_params":
        made = pooled(fused_params={name: object() for name in names})
    else:
        values = {name: 1 for name in names if name not in {"init_fn", "input_dim"}}
        made = Case(model=lambda: pooled_tables(**values))
    return made


@pytest.mark.parametrize("owner", [o for o, names in named(Treatment.WARNED).items() if names])
def test_a_setting_that_is_not_heeded_is_named_in_one_warning(
    owner: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    set_at_once(owner, named(Treatment.WARNED)[owner]).outcome(monkeypatch)
    said = [r.getMessage() for r in caplog.records if r.name == "planner.torchrec.planner"]
    (message,) = [each for each in said if "do not change what is planned" in each]
    lines = message.splitlines()
    for name in named(Treatment.WARNED)[owner]:
        if name != "generalized_comms_bandwidths":
            assert any(line.strip().startswith(f"{owner}.{name}") for line in lines), name


def test_bandwidths_of_ones_own_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Measured(BasicCommsBandwidths):  # type: ignore[misc]
        """Somebody's own."""

    Case(topology={"generalized_comms_bandwidths": Measured()}).outcome(monkeypatch)
    assert "Topology.generalized_comms_bandwidths: speeds are the hardware profile's" in caplog.text
    assert "Topology.intra_host_bw" not in caplog.text


@pytest.mark.parametrize("owner", [o for o, names in named(Treatment.NEUTRAL).items() if names])
def test_a_neutral_setting_changes_nothing_and_is_not_named(
    owner: str,
    plain: tuple[object, ...],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = named(Treatment.NEUTRAL)[owner]
    seen, *_ = set_at_once(owner, names).outcome(monkeypatch)
    assert seen == plain[0]
    assert "do not change what is planned" not in caplog.text


def test_defaults_are_not_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Case(planner=TOLD, sharders=tuple(get_default_sharders())).outcome(monkeypatch)
    assert not [each for each in caplog.records if each.name.startswith("planner.")]


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning")
@pytest.mark.parametrize("given", [{}, {"shardable_params": ["a"]}])
def test_which_tables_a_sharder_shards_is_heeded(
    given: dict[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def quantized() -> torch.nn.Module:
        here = torch.device("cpu")
        model = torch.nn.ModuleDict({
            name: EmbeddingBagCollection(tables=[table(name)], device=here) for name in "ab"
        })
        return quantize_embeddings(model, dtype=torch.int8, inplace=True)

    sharder = QuantEmbeddingBagCollectionSharder(**given)
    _, plan, *_ = Case(sharders=(sharder,), model=quantized).outcome(monkeypatch)
    assert set(plan.plan) == ({"a"} if given else {"a", "b"})
    assert "do not change what is planned" not in caplog.text


@pytest.mark.parametrize("plain", [True, False])
def test_topologies_are_heeded_for_tables_that_torchrec_plans(
    plain: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = bags_of_two if plain else beside_fused
    sharders = tuple(get_default_sharders())
    Case(topology={"ssd_cap": GIB, "hbm_mem_bw": 1.0}, model=model, sharders=sharders).outcome(
        monkeypatch
    )
    said = "no kernel that is modelled keeps rows on an SSD"
    heeded = "" if plain else "for tables that TorchRec plans it is heeded; else "
    assert f"Topology.ssd_cap: {heeded}{said}" in caplog.text
    assert f"Topology.hbm_mem_bw: {heeded}speeds are" in caplog.text
    assert ("do not change what is planned" in caplog.text) is plain


class OwnKernels(EmbeddingBagCollectionSharder):  # type: ignore[misc]
    """Offers every sharding type other kernels."""

    offered: ClassVar = {
        "table_wise": ["fused", "fused_uvm"],
        "row_wise": ["fused"],
        "column_wise": ["fused_uvm"],
        "data_parallel": ["dense"],
    }

    def sharding_types(self, compute_device_type: str) -> list[str]:
        del compute_device_type
        return list(self.offered)

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:
        del compute_device_type
        return self.offered[sharding_type]


def test_kernels_that_not_all_sharding_types_have_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case(sharders=(OwnKernels(),))
    seen, *_ = case.outcome(monkeypatch)
    (workload, *_) = seen
    assert set(workload.table("a").sharding_types) == {"table_wise", "row_wise", "data_parallel"}
    assert set(workload.table("a").compute_kernels) == {"fused", "dense"}
    for kind in ("table_wise", "column_wise"):
        assert (
            "OwnKernels.compute_kernels (a, b): not all sharding types have fused_uvm: "
            f"it is not planned for {kind}"
        ) in caplog.text
    assert caplog.text.count("is not planned for") == 2


def test_what_a_model_has_several_of_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = EmbeddingBagCollectionSharder(
        fused_params={"optimizer": EmbOptimType.ADAM, "output_dtype": SparseType.FP16},
        qcomm_codecs_registry=CODECS,
    )
    Case(sharders=(one, EmbeddingCollectionSharder()), model=unpooled_tables).outcome(monkeypatch)
    assert "optimizer" not in caplog.text.replace("dense_optimizer", "")
    assert "output types fp16, fp32: " in caplog.text
    assert "codecs that differ between sharders: " in caplog.text


def test_a_constraint_of_no_table_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = ParameterConstraints(device_group="cpu")
    constraints = dict.fromkeys(("a", ".b", "A", "x.a"), elsewhere)
    Case(planner={"constraints": constraints}).outcome(monkeypatch)
    line = "IterationTimePlanner.constraints (A, x.a): the sharders shard no such table"
    assert line in caplog.text


def test_a_setting_of_a_later_torchrec_is_named() -> None:
    @dataclasses.dataclass
    class CacheParamsOfLater:
        clairvoyant: bool = False

    CacheParamsOfLater.__module__ = CacheParams.__module__
    assert list(unheeded_fields("CacheParams", CacheParamsOfLater())) == []
    ((name, reason),) = unheeded_fields("CacheParams", CacheParamsOfLater(clairvoyant=True))
    assert name == "CacheParams.clairvoyant"
    assert "later TorchRec" in reason


def test_a_setting_of_the_scripts_own_subclass_is_named_so() -> None:
    @dataclasses.dataclass
    class Owned(ParameterConstraints):  # type: ignore[misc]
        owner: str = ""
        sharding_types: list[str] | None = None  # TorchRec's own, said again

    assert list(unheeded_fields("ParameterConstraints", Owned(sharding_types=["row_wise"]))) == []
    ((name, reason),) = unheeded_fields("ParameterConstraints", Owned(owner="me"))
    assert name == "ParameterConstraints.owner"
    assert reason == "a field of the script's own `Owned`, which no planner here reads"


def test_rows_over_several_nodes_are_named_and_not_planned() -> None:
    @dataclasses.dataclass
    class ConstraintsOfLater(ParameterConstraints):  # type: ignore[misc]
        num_nodes: int | None = None

    asked = ConstraintsOfLater(sharding_types=["table_row_wise"], num_nodes=2)
    ((name, reason),) = unheeded_fields("ParameterConstraints", asked)
    assert name == "ParameterConstraints.num_nodes"
    assert "split within one node" in reason
