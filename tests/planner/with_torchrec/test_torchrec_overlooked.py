"""What passed unheard: ids that are no rows, features without samples, tables of another device."""

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.fused_embeddingbag import FusedEmbeddingBagCollectionSharder
from torchrec.distributed.mc_embeddingbag import ManagedCollisionEmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError
from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection
from torchrec.modules.mc_modules import (
    DistanceLFU_EvictionPolicy,
    ManagedCollisionCollection,
    MCHManagedCollisionModule,
)
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor
from torchrec_cases import SHARDERS, TOLD, bags, beside_fused, gpus, solved, table

from planner.torchrec import IterationTimePlanner

BATCH = 4


def batch(**ids: list[int]) -> KeyedJaggedTensor:
    """Return a batch of four samples: as many ids of each, or none."""
    lengths = [len(each) // BATCH for each in ids.values() for _ in range(BATCH)]
    return KeyedJaggedTensor(
        keys=list(ids),
        values=torch.tensor([number for each in ids.values() for number in each]),
        lengths=torch.tensor(lengths),
    )


def planned(
    *batches: KeyedJaggedTensor, model: torch.nn.Module | None = None, **given: object
) -> IterationTimePlanner:
    planner = IterationTimePlanner(
        gpus(), BATCH, hardware="h100-sxm", timeout_seconds=0.1, sample_batches=batches, **given
    )
    planner.plan(bags(table("a"), table("b")) if model is None else model, SHARDERS)
    return planner


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines of the one warning."""
    found = [
        each.getMessage() for each in caplog.records if each.name == "planner.torchrec.planner"
    ]
    (message,) = [each for each in found if each.startswith("these ")] or [""]
    return message.splitlines()


@pytest.mark.parametrize("wrong", [1000, 2**40, -2])
def test_ids_that_are_no_rows_are_refused(wrong: int) -> None:
    good = batch(f_a=[0, 1, 2, 999], f_b=[5, 5, 5, 5])
    planned(good, batch(f_a=[-1, 1, 2, 3], f_b=[0, 0, 0, 0]))  # a pruned row is read by -1
    with pytest.raises(PlannerError, match=f"table `b` has 1,000 rows, .* id {wrong:,} of .*`f_b`"):
        planned(good, batch(f_a=[1, 2, 3, 4], f_b=[5, 6, wrong, 7]))


def test_ids_that_a_module_makes_rows_of_may_be_any() -> None:
    policy = DistanceLFU_EvictionPolicy()
    collisions = MCHManagedCollisionModule(
        zch_size=1000, device=torch.device("cpu"), input_hash_size=2**40, eviction_policy=policy,
        eviction_interval=1,
    )  # fmt: skip
    collection = bags(table("a"))
    module = ManagedCollisionEmbeddingBagCollection(
        collection,
        ManagedCollisionCollection({"a": collisions}, collection.embedding_bag_configs()),
    )
    planner = IterationTimePlanner(
        gpus(), BATCH, hardware="h100-sxm", timeout_seconds=0.1,
        sample_batches=[batch(f_a=[2**39] * 4)],
    )  # fmt: skip
    planner.plan(module, [ManagedCollisionEmbeddingBagCollectionSharder()])
    assert solved(planner).workload.tables[0].pooling_factor == 1


def test_a_feature_that_no_sample_has_is_named(caplog: pytest.LogCaptureFixture) -> None:
    planner = planned(batch(f_a=[1] * 8))
    read = solved(planner).workload
    assert [each.pooling_factor for each in read.tables] == [2, 1]
    (line,) = [each for each in said(caplog) if "sample_batches" in each]
    assert line.startswith("  IterationTimePlanner.sample_batches without `f_b` (b): taken to have")


def test_of_a_shared_table_the_feature_that_is_not_there_counts_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shared = bags(table("item", feature_names=["hist", "target"]))
    planner = planned(batch(histo=[1] * 80, target=[1] * 4), model=shared)
    assert solved(planner).workload.tables[0].pooling_factor == 2  # 1 of target, and 1 of hist
    lines = said(caplog)
    assert any("sample_batches without `hist` (item)" in each for each in lines)
    assert any("sample_batches (histo): no table of the model has such" in each for each in lines)


def test_a_feature_without_an_id_is_named(caplog: pytest.LogCaptureFixture) -> None:
    planner = planned(batch(f_a=[1] * 4, f_b=[]))
    assert solved(planner).workload.table("b").pooling_factor == 0.25  # once in four samples
    assert any("sample_batches with no id of `f_b` (b)" in each for each in said(caplog))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"a": batch(f_a=[1] * 4), "b": batch(f_a=[2] * 4)}, "feature `f_a` twice in a batch"),
        (
            KeyedJaggedTensor(["f_a"], torch.rand(2), lengths=torch.ones(2).int()),
            "ids of type torch.float32",
        ),
        (
            KeyedJaggedTensor(["f_a"], torch.ones(2).long(), lengths=torch.tensor([4, 1])),
            "2 ids, where the lengths come to 5",
        ),
        (
            KeyedJaggedTensor(["f_a"], torch.ones(0).long(), lengths=torch.ones(0).long()),
            "no sample",
        ),
    ],
)
def test_batches_that_cannot_be_counted_are_refused(given: object, problem: str) -> None:
    with pytest.raises(PlannerError, match=f"sample_batches have {problem}"):
        planned(given)


def test_samples_of_all_features_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    planned(batch(f_a=[1] * 4, f_b=[2] * 4))
    assert not [each for each in said(caplog) if "sample_batches" in each]
    planned()
    assert not [each for each in said(caplog) if "sample_batches" in each]


def test_tables_of_another_device_are_named(caplog: pytest.LogCaptureFixture) -> None:
    planner = planned(constraints={"b": ParameterConstraints(device_group="cpu")})
    assert [each.name for each in solved(planner).workload.tables] == ["a"]
    title, line = said(caplog)[:2]
    assert title == "these are left out:"
    assert line.startswith("  ParameterConstraints.device_group cpu (b): the plan is for cuda, and")


def test_no_solution_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    sharders = [FusedEmbeddingBagCollectionSharder(), *SHARDERS]
    planner = IterationTimePlanner(gpus(), 64, hardware="h100-sxm", timeout_seconds=0.1, **TOLD)
    planner.plan(beside_fused(), sharders)
    assert planner.solution is not None
    assert not any("solution" in each for each in said(caplog))
    caplog.clear()
    planner.plan(beside_fused().fused, sharders)
    assert planner.solution is None
    line = "  IterationTimePlanner.solution: None, as no cost model knows 1 table, which TorchRec"
    assert any(each.startswith(line) for each in said(caplog))


ROWS, WIDTH = 1000, 64
FULL, BY_ROW = 4 * ROWS * WIDTH, 4 * ROWS
STATES = {
    "SGD": 0, "EXACT_SGD": 0, "NONE": 0, "LAMB": 2 * FULL, "ADAM": 2 * FULL,
    "EXACT_ADAGRAD": FULL, "LARS_SGD": FULL, "EXACT_ROWWISE_ADAGRAD": BY_ROW,
    "ROWWISE_ADAGRAD": BY_ROW, "EMAINPLACE_ROWWISE_ADAGRAD": BY_ROW,
    "PARTIAL_ROWWISE_ADAM": FULL + BY_ROW, "PARTIAL_ROWWISE_LAMB": FULL + BY_ROW,
    "ENSEMBLE_ROWWISE_ADAGRAD": FULL + BY_ROW,
}  # fmt: skip
"""Bytes of what FBGEMM keeps for a table of 1,000 x 64 (fbgemm-gpu 1.8.0,
split_table_batched_embeddings_ops_training.py 1209-1300)."""
UNSUPPORTED = {"SHAMPOO", "SHAMPOO_V2", "MADGRAD", "EXACT_ROWWISE_WEIGHTED_ADAGRAD"}
"""FBGEMM trains no table with them: they count as Adam."""


@pytest.mark.parametrize("optimizer", EmbOptimType, ids=lambda each: each.name)
def test_optimizers_hold_what_fbgemm_keeps(
    optimizer: EmbOptimType, caplog: pytest.LogCaptureFixture
) -> None:
    fused = EmbeddingBagCollectionSharder(fused_params={"optimizer": optimizer})
    planner = IterationTimePlanner(gpus(), 64, hardware="h100-sxm", timeout_seconds=0.1, **TOLD)
    planner.plan(bags(table("a", rows=ROWS, dim=WIDTH)), [fused])
    workload = solved(planner).workload
    held = ROWS * workload.optimizer_of(workload.tables[0]).state_bytes_per_row(WIDTH)
    if optimizer.name in UNSUPPORTED:
        assert held == 2 * FULL
        line = f"  optimizer {optimizer.name} (a): not modelled: counted as Adam, the slowest"
        assert said(caplog) == ["these are planned roughly:", line]
    else:
        assert held == STATES[optimizer.name]
        assert said(caplog) == []
