"""The dense part of models: TorchRec's own are read whole, of others what was not read is said."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.models.deepfm import SimpleDeepFMNN
from torchrec.models.dlrm import DLRM, DLRM_DCN, DLRM_Projection, DLRMTrain, InteractionArch
from torchrec.modules.embedding_configs import EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor
from torchrec_cases import META, SHARDERS, TOLD, bags, gpus, table

from costmodel.domain.dense_layers import num_products
from costmodel.domain.workload import DenseModel, Interaction
from costmodel.operators.operator_list import BatchSize, OperatorList, Size
from costmodel.operators.work import work_of
from planner.torchrec import IterationTimePlanner, Solution, load_torchrec_plan, save_plan
from planner.torchrec.dense_reading import UNTOLD_LENGTH

BATCH, FEATURES, DIM, LENGTH = 64, 4, 16, 100
DLRM_LAYERS: dict[str, Any] = {
    "dense_in_features": 13,
    "dense_arch_layer_sizes": [32, DIM],
    "over_arch_layer_sizes": [64, 32, 1],
    "dense_device": META,
}


def tables(number: int = FEATURES) -> EmbeddingBagCollection:
    return bags(*(table(f"t{i}", dim=DIM) for i in range(number)))


def planned(model: nn.Module, **given: object) -> Solution:
    given = {"sharder": "cost_greedy", "hardware": "h100-sxm", **TOLD, **given}
    planner = IterationTimePlanner(gpus(), BATCH, **given)
    planner.plan(model, SHARDERS)
    assert planner.solution is not None
    return planner.solution


def counted(run: Callable[[], object]) -> float:
    """Return the multiplications of a sample that torch counts."""
    with FlopCounterMode(display=False) as counter:
        run()
    return float(counter.get_total_flops()) / (2 * BATCH)


def dlrm(kind: type[DLRM] = DLRM, **more: object) -> DLRM:
    return kind(embedding_bag_collection=tables(), **DLRM_LAYERS, **more).to(META)


def projection() -> DLRM:
    branches = {"interaction_branch1_layer_sizes": [2 * DIM]}
    branches["interaction_branch2_layer_sizes"] = [3 * DIM]
    return dlrm(DLRM_Projection, **branches)


def forward_of(model: DLRM) -> Callable[[], object]:
    """Return the forward beside the lookups."""

    def run() -> None:
        dense = model.dense_arch(torch.empty(BATCH, 13, device=META))
        sparse = torch.empty(BATCH, FEATURES, DIM, device=META)
        model.over_arch(model.inter_arch(dense, sparse))

    return run


def messages(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    records = [each for each in caplog.records if each.name == "planner.torchrec.planner"]
    return [each.getMessage() for each in records if each.levelno == level]


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_dlrm_is_read_whole(
    caplog: pytest.LogCaptureFixture,
    wrapped: bool,  # noqa: FBT001
) -> None:
    model = dlrm()
    with caplog.at_level(logging.INFO, logger="planner"):
        solution = planned(DLRMTrain(model) if wrapped else model)
    dense = solution.workload.dense
    assert dense == DenseModel(
        num_dense_features=13,
        bottom_mlp=(32, DIM),
        interaction=Interaction.DOT,
        top_mlp=(64, 32, 1),
    )
    # the dot products of 5 vectors of 16 come on top of the layers'
    products = 5 * 5 * DIM
    assert num_products(solution.workload) + products == counted(forward_of(model))
    assert solution.notes == ()
    assert messages(caplog) == []
    parameters = sum(each.numel() for each in (*model.dense_arch.parameters(),
                                               *model.over_arch.parameters()))  # fmt: skip
    (said, *_) = messages(caplog, logging.INFO)
    assert said.startswith(
        f"the dense part was read from {parameters:,} of {parameters:,} dense parameters: "
        "bottom_mlp [32, 16], dot, top_mlp [64, 32, 1]; "
    )


def test_a_cross_network_is_read_with_its_layers_and_rank(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = dlrm(DLRM_DCN, dcn_num_layers=2, dcn_low_rank_dim=8)
    solution = planned(model)
    dense = solution.workload.dense
    assert (dense.interaction, dense.cross_layers, dense.cross_rank) == ("dcn_v2", 2, 8)
    assert num_products(solution.workload) == counted(forward_of(model))
    assert dense.most_products == 0
    assert messages(caplog) == []


def test_parts_of_a_model_of_ones_own_are_read_wherever_they_are() -> None:
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = tables()
            self.parts = nn.ModuleDict({
                "dense_arch": nn.Linear(5, DIM, device=META),
                "meet": InteractionArch(FEATURES),
                "over": nn.Linear(DIM + 10, 1, device=META),
            })

    dense = planned(Mine()).workload.dense
    assert dense == DenseModel(
        num_dense_features=5, bottom_mlp=(DIM,), interaction=Interaction.DOT, top_mlp=(1,)
    )


class ByKeyedTensor(nn.Module):
    """Has a forward that nobody can make a batch for."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, told: dict[str, torch.Tensor]) -> torch.Tensor:
        raise NotImplementedError(str(told))


def test_what_no_layers_have_is_named_where_the_model_cannot_be_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = projection()
    solution = planned(ByKeyedTensor(model))
    # all its layers are known, and not that they run side by side
    counts = counted(forward_of(model)) - 2 * 3 * DIM
    assert solution.workload.dense.most_products == counts
    (said,) = messages(caplog)
    assert "InteractionProjectionArch: its branches are timed one after the other" in said
    assert "layers have other inputs than the layers before them: each by itself, all" in said
    assert "what it runs could not be read (the model's operators cannot be read: its" in said
    assert "`sample_batches` of IterationTimePlanner" in said


def deepfm() -> SimpleDeepFMNN:
    return SimpleDeepFMNN(
        num_dense_features=13,
        embedding_bag_collection=tables(),
        hidden_layer_size=32,
        deep_fm_dimension=24,
    )


def of_products(operators: OperatorList[Size]) -> float:
    return work_of(operators.at(BatchSize(BATCH))).forward_flop / (2 * BATCH)


def test_a_projection_is_read_by_what_it_runs(caplog: pytest.LogCaptureFixture) -> None:
    model = projection()
    with caplog.at_level(logging.INFO, logger="planner"):
        dense = planned(model).workload.dense
    assert dense.operators is not None
    assert of_products(dense.operators) == counted(forward_of(model))
    assert messages(caplog) == []
    (said, *_) = messages(caplog, logging.INFO)
    count = sum(n.numel() for name, n in model.named_parameters() if "sparse" not in name)
    assert f"read whole: {len(dense.operators.operators):,} operators, {count:,} param" in said


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_deepfm_is_read_by_what_it_runs_with_its_sums(precision: str) -> None:
    solution = planned(deepfm(), precision=precision)
    listed = solution.workload.dense.operators
    assert listed is not None
    products = [each for each in listed.operators if each.name == "aten::addmm"]
    halves = {each.inputs[1].data_type.value for each in products}
    assert halves == {"bfloat16" if precision == "bf16" else "float32"}
    assert any("of the dense part's" in each for each in solution.notes)


class Tensors(nn.Module):
    """Takes what nobody can make up."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = tables()
        self.layers = nn.ModuleList(nn.Linear(FEATURES * DIM, 1) for _ in range(3))

    def forward(self, batch: "Mine") -> torch.Tensor:
        embedded = self.tables(batch.sparse_features).values()
        return torch.stack([each(embedded) for each in self.layers]).sum()


@dataclass
class Mine:
    """A batch."""

    sparse_features: KeyedJaggedTensor


def test_sample_batches_are_what_forward_takes() -> None:
    names = [each for config in tables().embedding_bag_configs() for each in config.feature_names]
    lengths = torch.ones(FEATURES * 40, dtype=torch.int64)
    features = KeyedJaggedTensor(
        keys=names, values=torch.randint(0, 10, (FEATURES * 40,)), lengths=lengths
    )
    solution = planned(Tensors(), sample_batches=iter([Mine(features)]))
    assert solution.workload.dense.operators is not None
    assert of_products(solution.workload.dense.operators) == 3 * FEATURES * DIM
    assert planned(Tensors()).workload.dense.operators is None


class Arguments(Tensors):
    """Takes two arguments, one of which nobody can make up."""

    def forward(self, told: dict[str, int], batch: KeyedJaggedTensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(Mine(batch)) * told["weight"]


def test_sample_batches_may_be_tuples_of_arguments() -> None:
    names = [each for config in tables().embedding_bag_configs() for each in config.feature_names]
    features = KeyedJaggedTensor(
        keys=names,
        values=torch.zeros(FEATURES * 80, dtype=torch.int64),
        lengths=torch.full((FEATURES * 40,), 2),
    )
    solution = planned(Arguments(), sample_batches=[({"weight": 2}, features)])
    assert solution.workload.dense.operators is not None
    assert {each.pooling_factor for each in solution.workload.tables} == {2.0}


class Cast(nn.Module):
    """Multiplies in half precision: by an autocast for CUDA, which a CPU would not have."""

    def __init__(self) -> None:
        super().__init__()
        self.tables, self.layer = tables(), nn.Linear(FEATURES * DIM, 8)

    def forward(self, sparse: KeyedJaggedTensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            made: torch.Tensor = self.layer(self.tables(sparse).values())
        return made.sum()


def test_an_autocast_in_forward_is_seen(recwarn: pytest.WarningsRecorder) -> None:
    before = torch.autocast.__init__
    listed = planned(Cast()).workload.dense.operators
    assert listed is not None
    products = [each for each in listed.operators if each.name in {"aten::addmm", "aten::mm"}]
    assert {each.inputs[-1].data_type.value for each in products} == {"bfloat16"}
    assert torch.autocast.__init__ is before
    assert not [each for each in recwarn if "autocast" in str(each.message)]
    told = planned(Cast(), precision="bf16").workload.dense
    assert (told.operators, told.top_mlp) == (None, (8,))


def test_ranks_that_compare_their_models_do_not_run_them() -> None:
    planner = IterationTimePlanner(gpus(), BATCH, **TOLD)
    model, before = projection(), torch.get_rng_state()
    model.register_forward_pre_hook(lambda *_: pytest.fail("it ran"))
    planner._question(model, SHARDERS)
    assert torch.equal(torch.get_rng_state(), before)


class Sequence(nn.Module):
    """Attention over a sequence, with its weights in modules or as parameters of its own."""

    def __init__(self, *, own: bool) -> None:
        super().__init__()
        config = EmbeddingConfig(
            name="item", embedding_dim=DIM, num_embeddings=1000, feature_names=["item"]
        )
        self.items = EmbeddingCollection(device=META, tables=[config])
        self.own = own
        if own:
            self.qkv = nn.Parameter(torch.empty(DIM, 3 * DIM, device=META))
            self.out = nn.Parameter(torch.empty(DIM, DIM, device=META))
        else:
            self.encoder = nn.TransformerEncoderLayer(
                DIM, 4, 4 * DIM, batch_first=True, device=META
            )

    def dense(self) -> torch.Tensor:
        x = torch.empty(BATCH, LENGTH, DIM, device=META)
        if not self.own:
            encoded: torch.Tensor = self.encoder(x)
            return encoded
        q, k, v = (x @ self.qkv).chunk(3, -1)
        return torch.softmax(q @ k.transpose(1, 2), -1) @ v @ self.out


@pytest.mark.parametrize("length", [None, LENGTH])
@pytest.mark.parametrize(
    ("own", "kinds", "read", "parameters"),
    [
        # out_proj, linear1 and linear2 with their biases; the rest is in_proj and two norms
        (False, "nn.MultiheadAttention, nn.LayerNorm", 16 * 17 + 16 * 64 * 2 + 64 + 16, 3280),
        (True, "Sequence", 0, 4 * DIM * DIM),
    ],
)
def test_attention_is_doubt(
    own: bool,  # noqa: FBT001
    kinds: str,
    read: int,
    parameters: int,
    length: int | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Sequence(own=own)
    given: dict[str, object] = {"replicate": False}
    if length is not None:
        given["constraints"] = {"item": ParameterConstraints(pooling_factors=[float(length)])}
    solution = planned(model, **given)
    dense = solution.workload.dense
    assert parameters == sum(
        each.numel() for name, each in model.named_parameters() if not name.startswith("items")
    )
    (said,) = messages(caplog)
    whole = f"{read:,} of {parameters:,}"
    assert f"the dense part was read from {whole} dense parameters" in said
    assert f"those of {kinds} were not, and their FLOP are not known" in said
    assert "layers may run on every id of a sequence" in said
    assert solution.notes[-1].startswith(f"the dense part was read from {whole} parameters")
    # what torch counts is more than what is timed, and no more than what the interval is for
    there = counted(model.dense)
    rows = length or UNTOLD_LENGTH
    assert num_products(solution.workload) < there <= dense.most_products
    assert dense.most_products <= there * (rows / LENGTH) ** 2


@pytest.mark.parametrize("own", [False, True])
def test_as_many_attentions_are_doubt_as_there_are(own: bool) -> None:  # noqa: FBT001
    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = Sequence(own=own)
            self.others = nn.ModuleList(Sequence(own=own) for _ in range(5))
            for each in self.others:
                del each.items

    model = Stack()
    lengths = {"item": ParameterConstraints(pooling_factors=[float(LENGTH)])}
    solution = planned(model, constraints=lengths)
    there = counted(lambda: [each.dense() for each in (model.first, *model.others)])
    assert solution.workload.dense.most_products == there


def test_the_interval_is_wider_where_less_was_read() -> None:
    model = nn.ModuleDict({"tables": tables(), "mix": nn.Bilinear(1024, 1024, 2048, device=META)})
    solution = planned(model)
    told = planned(model, dense=replace(solution.workload.dense, most_products=0.0))
    assert solution.step_time > told.step_time  # as expected: what was not read may take long
    (low, high), (sure_low, sure_high) = (x.confidence.interval for x in (solution, told))
    assert high / low > 1.5 * sure_high / sure_low
    assert next(iter(solution.confidence.causes)) == "unread_dense_part"


def test_layers_side_by_side_are_said(caplog: pytest.LogCaptureFixture) -> None:
    width = FEATURES * DIM
    experts = nn.ModuleList(nn.Linear(width, 8, device=META) for _ in range(6))
    model = nn.ModuleDict({"tables": tables(), "experts": experts})
    dense = planned(model).workload.dense
    assert dense.most_products == 6 * width * 8
    (said,) = messages(caplog)
    assert "layers have other inputs than the layers before them" in said


def test_dense_features_beside_the_embeddings_are_read() -> None:
    width = FEATURES * DIM + 13
    model = nn.Sequential(tables(), nn.Linear(width, 8, device=META), nn.Linear(8, 1, device=META))
    solution = planned(model)
    assert solution.workload.dense.num_dense_features == 13
    assert num_products(solution.workload) == width * 8 + 8


def test_lookups_in_plain_embeddings_are_no_products() -> None:
    width = FEATURES * DIM
    plain = nn.Embedding(10_000, 8, device=META)
    model = nn.Sequential(tables(), plain, nn.Linear(width, 8, device=META))
    assert planned(model).workload.dense.most_products == 0


def test_a_model_without_a_dense_part_has_nothing_to_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="planner"):
        solution = planned(tables())
    assert solution.workload.dense.top_mlp == (1,)
    assert messages(caplog, logging.INFO)[0].startswith("no dense part: ")


def test_a_model_whose_tables_torchrec_plans_is_read_without_them() -> None:
    fused = FusedEmbeddingBagCollection(
        tables=[table("b")],
        optimizer_type=torch.optim.SGD,
        optimizer_kwargs={"lr": 0.1},
        device=META,
    )
    norm = nn.LayerNorm(4, device=META)  # the one dense part, which no layer stands for
    planner = IterationTimePlanner(gpus(), BATCH, hardware="h100-sxm", **TOLD)
    plan = planner.plan(nn.ModuleDict({"fused": fused, "norm": norm}), get_default_sharders())
    assert set(plan.plan) == {"fused"}
    assert planner.solution is None


def test_a_saved_plan_keeps_the_doubt(tmp_path: Any) -> None:  # noqa: ANN401
    from planner.files.plans import load_plan_file

    model = Sequence(own=False)
    solution = planned(model)
    save_plan(tmp_path / "plan.json", solution)
    assert load_plan_file(tmp_path / "plan.json").workload.dense == solution.workload.dense
    assert load_torchrec_plan(tmp_path / "plan.json", model, SHARDERS) == solution.torchrec_plan


def test_of_many_layers_the_first_are_named(caplog: pytest.LogCaptureFixture) -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bags = bags(table("a", dim=DIM))
            self.layers = nn.Sequential(*(nn.Linear(DIM, DIM) for _ in range(12)))

    planned(Deep())
    (said,) = messages(caplog)
    assert "what else it runs could not be read (the model's operators cannot be read:" in said
    assert f"top_mlp [{', '.join([str(DIM)] * 8)}, ...] of 12 layers" in said
