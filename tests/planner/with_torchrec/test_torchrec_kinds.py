"""Every module, compute kernel and storage reservation of the installed TorchRec is planned."""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
import torchrec.distributed
from torch import nn
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner import storage_reservations
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    PlannerError,
    StorageReservation,
)
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ModuleSharder
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingCollection
from torchrec.modules.embedding_tower import EmbeddingTower, EmbeddingTowerCollection
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection
from torchrec.modules.fused_embedding_modules import (
    FusedEmbeddingBagCollection,
    FusedEmbeddingCollection,
)
from torchrec.modules.itep_embedding_modules import (
    ITEPEmbeddingBagCollection,
    ITEPEmbeddingCollection,
)
from torchrec.modules.itep_modules import GenericITEPModule
from torchrec_cases import (
    META,
    SHARDERS,
    bags,
    managed_collision,
    managed_collision_sequence,
    planner,
    table,
)

from costmodel.domain.plan import ComputeKernel
from planner.torchrec.setting_treatments import SETTINGS, Treatment

TABLELESS = {"ManagedCollisionCollection", "KeyedJaggedTensorPool", "TensorPool"}
"""What sharders shard without a plan for tables: the first goes with the collection around it."""


def shipped(base: type) -> list[Any]:
    """Return TorchRec's classes that derive from one, of all its sharding modules."""
    for module in pkgutil.iter_modules(torchrec.distributed.__path__):
        if not module.ispkg:
            importlib.import_module(f"torchrec.distributed.{module.name}")
    found, waiting = [], [base]
    while waiting:
        derived = waiting.pop().__subclasses__()
        waiting += derived
        found += [each for each in derived if each.__module__.startswith("torchrec.")]
    return found


def sharders() -> dict[str, Any]:
    """Return a sharder for every module that is sharded for training, by the module's name."""
    made = {}
    for kind in shipped(ModuleSharder):
        if not any(part in kind.__name__ for part in ("Quant", "Infer", "Base")):
            one = next((each for each in get_default_sharders() if type(each) is kind), None)
            made[kind.module_type.fget(None).__name__] = one or kind
    return made


def unpooled() -> EmbeddingCollection:
    return EmbeddingCollection(tables=[sequence()], device=META)


def sequence() -> EmbeddingConfig:
    return EmbeddingConfig(name="a", num_embeddings=1000, embedding_dim=64, feature_names=["f_a"])


def fused(kind: Any, config: EmbeddingBagConfig | EmbeddingConfig) -> nn.Module:  # noqa: ANN401
    made: nn.Module = kind(
        tables=[config],
        optimizer_type=torch.optim.SGD,
        optimizer_kwargs={"lr": 0.1},
        device=META,
    )
    return made


def pruning() -> GenericITEPModule:
    return GenericITEPModule(table_name_to_unpruned_hash_sizes={"a": 2000})


def tower() -> EmbeddingTower:
    return EmbeddingTower(embedding_module=bags(table("a")), interaction_module=nn.Linear(64, 8))


def prioritized() -> nn.Module:
    from torchrec.modules.pec_embedding_modules import PECEmbeddingCollection

    made: nn.Module = PECEmbeddingCollection(unpooled())
    return made


MODULES: dict[str, Callable[[], nn.Module]] = {
    "EmbeddingBagCollection": lambda: bags(table("a")),
    "EmbeddingCollection": unpooled,
    "FeatureProcessedEmbeddingBagCollection": lambda: FeatureProcessedEmbeddingBagCollection(
        bags(table("a"), is_weighted=True),
        PositionWeightedModuleCollection({"f_a": 10}, device=META),
    ),
    "ManagedCollisionEmbeddingBagCollection": managed_collision,
    "ManagedCollisionEmbeddingCollection": managed_collision_sequence,
    "PECEmbeddingCollection": prioritized,
    "ITEPEmbeddingBagCollection": lambda: ITEPEmbeddingBagCollection(bags(table("a")), pruning()),
    "ITEPEmbeddingCollection": lambda: ITEPEmbeddingCollection(unpooled(), pruning()),
    "EmbeddingBag": lambda: nn.EmbeddingBag(1000, 64, device=META, include_last_offset=True),
    "EmbeddingTower": tower,
    "EmbeddingTowerCollection": lambda: EmbeddingTowerCollection(towers=[tower()]),
    "FusedEmbeddingBagCollection": lambda: fused(FusedEmbeddingBagCollection, table("a")),
    "FusedEmbeddingCollection": lambda: fused(FusedEmbeddingCollection, sequence()),
}
"""With one table each."""


def test_every_module_that_is_sharded_is_known_and_tried() -> None:
    there = set(sharders()) - TABLELESS
    assert there <= set(SETTINGS["module"])
    assert set(MODULES) == set(SETTINGS["module"])


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_planned_beside_others_and_what_is_rough_is_said(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    there = sharders()
    if name not in there:
        pytest.skip("the installed torchrec has no such module")
    sharder = there[name]() if isinstance(there[name], type) else there[name]
    made = planner(constraints={"a": ParameterConstraints(pooling_factors=[2.0])})
    model = nn.ModuleDict({"plain": bags(table("b")), "other": MODULES[name]()})
    plan = made.plan(model, [sharder, *SHARDERS]).plan
    assert len(plan["other"]) == len(plan["plain"]) == 1
    assert made.solution is not None
    rough = SETTINGS["module"][name].treatment is Treatment.APPROXIMATED
    assert ("these are planned roughly" in caplog.text) == rough
    assert (f"{name}" in caplog.text) == rough
    theirs = "TorchRec's own option" in SETTINGS["module"][name].text
    assert (made.solution.other_time > 0) == theirs
    assert len(made.solution.workload.tables) == (1 if theirs else 2)


def kernels() -> dict[str, Treatment]:
    return {name: each.treatment for name, each in SETTINGS["compute_kernel"].items()}


def test_every_compute_kernel_is_known() -> None:
    there = {each.value for each in EmbeddingComputeKernel if "quant" not in each.value}
    assert there <= set(kernels())
    assert {name for name, each in kernels().items() if each is Treatment.SUPPORTED} == {
        each.value for each in ComputeKernel
    }


@pytest.mark.parametrize("kernel", [n for n, e in kernels().items() if e is Treatment.APPROXIMATED])
def test_a_kernel_without_a_model_is_torchrecs_to_plan_or_not_offered(kernel: str) -> None:
    asked = ParameterConstraints(compute_kernels=[kernel], sharding_types=["row_wise"])
    model = bags(table("a"), table("b"))
    offered = SHARDERS[0].compute_kernels("row_wise", "cuda")
    made = planner(constraints={"a": asked})
    if kernel not in offered:
        with pytest.raises(PlannerError, match=f"its constraints allow .* kernels {kernel}"):
            made.plan(model, SHARDERS)
        return
    assert made.plan(model, SHARDERS).plan[""]["a"].compute_kernel == kernel
    assert made.solution is not None
    assert [each.name for each in made.solution.workload.tables] == ["b"]


MIB = 2**20
RESERVATIONS: dict[str, dict[str, object]] = {
    "FixedPercentageStorageReservation": {"percentage": 0.5},
    "FixedAbsoluteStorageReservation": {"hbm_reserved_bytes": 100 * MIB},
    "HeuristicalStorageReservation": {"percentage": 0.5},
    "InferenceStorageReservation": {"percentage": 0.5},
    "SKUAwareStorageReservation": {"margin_bytes": 100 * MIB},
}


def test_every_storage_reservation_is_known_and_tried() -> None:
    there = {
        each.__name__
        for each in shipped(StorageReservation)
        if each.__module__ == storage_reservations.__name__
    }
    assert there <= set(RESERVATIONS)
    assert set(RESERVATIONS) == set(SETTINGS["storage_reservation"])


@pytest.mark.filterwarnings("ignore:.*Heuristical")
@pytest.mark.parametrize("name", RESERVATIONS)
def test_a_storage_reservation_decides_what_is_left(name: str) -> None:
    kind = getattr(storage_reservations, name, None)
    if kind is None:
        pytest.skip("the installed torchrec has no such storage reservation")
    left = []
    for settings in ({}, {"storage_reservation": kind(**RESERVATIONS[name])}):
        made = planner(**settings)
        made.plan(bags(table("a")), SHARDERS)
        assert made.solution is not None
        left.append(made.solution.topology.hardware.gpu.memory_bytes)
    assert left[1] != left[0]
