"""Models read from small runs, beside what torch counts in another, larger one."""

import random
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import numpy as np
import torch
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.profiler import ProfilerActivity, profile
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.flop_counter import FlopCounterMode
from torchrec.datasets.utils import Batch
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor, KeyedTensor

from bench.dense_reading.models import TORCHREC
from bench.dense_reading.reading import ATTENTION, EXAMPLES
from costmodel.kernels.listed_collectives import collective_of
from costmodel.operators.operator_families import OperatorFamily, family_of
from costmodel.operators.operator_list import BatchSize, Pass, SequenceSize
from costmodel.operators.work import work_of
from planner.operators import stand_ins
from planner.operators.batches import MOST_SAMPLES
from planner.operators.combining import size_of
from planner.operators.made_batches import MadeSize, made_batches
from planner.operators.reading import read_operators
from planner.operators.recording import record
from planner.operators.refusals import ReadingError
from planner.operators.stand_ins import dense_copy

META, WIDTH, NUM_DENSE = torch.device("meta"), 16, 13
LARGE = MadeSize(200, 37, 2000, ((37, 2000), (19, 900)))


def bags(*names: str) -> EmbeddingBagCollection:
    tables = [
        EmbeddingBagConfig(name=each, num_embeddings=99, embedding_dim=WIDTH, feature_names=[each])
        for each in names or ("a", "b")
    ]
    return EmbeddingBagCollection(tables=tables, device=META)


def histories() -> EmbeddingCollection:
    config = EmbeddingConfig(
        name="item", num_embeddings=99, embedding_dim=WIDTH, feature_names=["seen", "bought"]
    )
    return EmbeddingCollection(tables=[config], device=META)


class Transformer(nn.Module):
    """Attention over padded histories, a filter, and a product over ids that are not padded."""

    def __init__(self) -> None:
        super().__init__()
        self.items = histories()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.filter = nn.Conv1d(WIDTH, 8, 3, padding=1)
        self.scores = nn.Linear(WIDTH, 1)

    def forward(self, sparse: KeyedJaggedTensor) -> torch.Tensor:
        embedded = self.items(sparse)
        seen = embedded["seen"]
        padded = seen.to_padded_dense(int(seen.lengths().max()))
        attended, _ = self.attention(padded, padded, padded, need_weights=False)
        scores = self.scores(embedded["bought"].values())
        return self.filter(attended.transpose(1, 2)).mean() + scores.mean()


class Plain(nn.Module):
    """Pooled features and dense numbers, and what is told of it."""

    def __init__(self, tables: nn.Module | None = None) -> None:
        super().__init__()
        self.tables = tables or bags()
        self.first = nn.Linear(NUM_DENSE + 2 * WIDTH, 8)
        self.unused = nn.Linear(3, 5)

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        joined = torch.cat([dense, self.tables(sparse).values()], dim=1)
        out: torch.Tensor = self.first(joined).relu()
        return out


MODELS: dict[str, Callable[[], nn.Module]] = {
    "Transformer": Transformer,
    "Plain": Plain,
    **{name: make for name, make in TORCHREC.items() if not name.startswith("24")},
}


@pytest.mark.parametrize("name", MODELS)
def test_a_larger_batch_has_the_operators_flop_and_activations_that_are_read(name: str) -> None:
    model = MODELS[name]()
    found = read_operators(model)
    copy = dense_copy(model)
    (large,) = made_batches(model, copy, [LARGE])
    with FlopCounterMode(display=False, custom_mapping=ATTENTION) as counter:
        record(copy, large)
    run = record(copy, large)
    sized = found.at(size_of(run, found.groups))
    assert work_of(sized).flop == counter.get_total_flops() > 0
    assert found.unexplained == ()
    assert [each.name for each in sized.operators] == [each.name for each in run.operators]
    for read, ran in zip(sized.operators, run.operators, strict=True):
        assert [each.sizes for each in read.inputs] == [each.sizes for each in ran.inputs]
        assert [each.sizes for each in read.outputs] == [each.sizes for each in ran.outputs]


def test_activations_are_what_autograd_saves() -> None:
    model = TORCHREC["DLRM"]()
    copy = dense_copy(model)
    (large,) = made_batches(model, copy, [LARGE])
    saved: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda each: each):
        run = record(copy, large)
    given = {each.untyped_storage().data_ptr() for each in copy.module.parameters()}
    given |= {each.untyped_storage().data_ptr() for each in copy.module.buffers()}
    dense = large.arguments[0].dense_features.untyped_storage().data_ptr()
    kept = sum(each.nbytes() for at, each in saved.items() if at not in given | {dense})
    read = work_of(read_operators(model).at(BatchSize(run.samples))).kept
    # the indices of the triangle and the labels are saved, too, and given with the batch
    assert read == pytest.approx(kept, rel=0.01)


def test_the_model_stays_as_it_is() -> None:
    model = Plain()
    before = {name: id(each) for name, each in model.named_parameters()}
    state = torch.random.get_rng_state()
    read_operators(model)
    assert {name: id(each) for name, each in model.named_parameters()} == before
    assert isinstance(model.tables, EmbeddingBagCollection)
    assert model.first.weight.grad is None
    assert torch.equal(torch.random.get_rng_state(), state)


def test_gradients_are_marked_where_they_appear() -> None:
    found = read_operators(Plain())
    names = [each.name for each in found.parameters]
    assert names == ["first.weight", "first.bias", "unused.weight", "unused.bias"]
    assert [each.trained for each in found.parameters] == [True, True, False, False]
    marked = {names[place]: each.name for each in found.operators for place in each.parameters}
    assert marked == {"first.weight": "aten::sum", "first.bias": "aten::sum"}
    assert found.num_parameters == (NUM_DENSE + 2 * WIDTH) * 8 + 8 + 3 * 5 + 5
    (given,) = found.embeddings
    assert (given.name, given.tensor.sizes[1].constant) == ("tables", 2 * WIDTH)
    readers = [each.name for each in found.operators if each.reads == (0,)]
    assert readers == ["aten::cat"]
    (last,) = (each for each in found.operators if each.embeddings)
    assert last.direction is Pass.BACKWARD


def test_what_was_assumed_is_said() -> None:
    said = " ".join(read_operators(Plain().eval()).assumed)
    for part in (
        "no autocast around forward",
        "made up",
        "sum of its outputs",
        "evaluation mode",
    ):
        assert part in said
    assert "evaluation" not in " ".join(read_operators(Plain()).assumed)


def test_an_autocast_around_forward_casts_what_it_multiplies() -> None:
    found = read_operators(Plain(), autocast=torch.bfloat16)
    types = {
        each.inputs[-1].data_type.value
        for each in found.operators
        if family_of(each.name) is OperatorFamily.PRODUCT
    }
    assert types == {"bfloat16"}
    assert "aten::_to_copy" in {each.name for each in found.operators}
    assert found.assumed[0].startswith("an autocast of bfloat16 around forward")
    plain = read_operators(Plain())
    assert work_of(found.at(BatchSize(99))).flop == work_of(plain.at(BatchSize(99))).flop


@pytest.fixture
def four_ranks() -> Iterator[None]:
    """A process group of four ranks, three of which are not there."""
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield
    torch.distributed.destroy_process_group()


class TensorParallel(nn.Module):
    """Two layers, the second of which gives part of a sum; ``join`` communicates."""

    def __init__(self, join: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 8), nn.Linear(8, WIDTH)
        self.join, self.group = join, torch.distributed.group.WORLD

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.join(self.down(self.up(rows).relu())).square().mean()


def summed(part: torch.Tensor) -> torch.Tensor:
    torch.distributed.all_reduce(part.detach())
    return part


def gathered(part: torch.Tensor) -> torch.Tensor:
    slices = [torch.empty_like(part) for _ in range(4)]
    torch.distributed.all_gather(slices, part.detach())
    return part + slices[3]


def scattered(part: torch.Tensor) -> torch.Tensor:
    everything = functional.all_gather_single_autograd(part, 0, torch.distributed.group.WORLD)
    return functional.reduce_scatter_single_autograd(
        everything, "sum", 0, torch.distributed.group.WORLD
    )


def added(part: torch.Tensor) -> torch.Tensor:
    return functional.all_reduce(part, "sum", torch.distributed.group.WORLD)


@pytest.mark.usefixtures("four_ranks")
@pytest.mark.parametrize(
    ("join", "forward", "backward"),
    [
        (summed, [("all_reduce", 1)], []),
        (gathered, [("all_gather", 4)], []),
        (added, [("all_reduce", 1)], [("all_reduce", 1)]),
        (scattered, [("all_gather", 4), ("reduce_scatter", 4)],
         [("all_gather", 4), ("reduce_scatter", 4)]),
    ],
)  # fmt: skip
def test_collectives_are_read_without_other_ranks(
    join: Callable[[torch.Tensor], torch.Tensor],
    forward: list[tuple[str, int]],
    backward: list[tuple[str, int]],
) -> None:
    """Each is so many times a rank's slice."""
    batches = [(torch.rand(samples, WIDTH),) for samples in (4, 6, 8, 12)]
    found = read_operators(TensorParallel(join), batches)
    for direction, expected in ((Pass.FORWARD, forward), (Pass.BACKWARD, backward)):
        own = [each for each in found.at(BatchSize(10)).operators if each.direction is direction]
        joined = [each for each in map(collective_of, own) if each is not None]
        assert [(each.op, each.num_bytes / (4 * 10 * WIDTH)) for each in joined] == expected
        assert {each.num_ranks for each in joined} <= {4}
    assert not found.unexplained


@pytest.mark.usefixtures("four_ranks")
def test_a_model_that_needs_other_ranks_for_more_than_sums_is_not_run() -> None:
    def sent(part: torch.Tensor) -> torch.Tensor:
        torch.distributed.broadcast(part, 0)
        return part

    with pytest.raises(ReadingError, match=r"communicates between ranks by `c10d::broadcast_`"):
        read_operators(TensorParallel(sent), [(torch.rand(16, WIDTH),)])


class Closure(Plain):
    """Runs its own layer by an attribute that every copy shares."""

    def __init__(self) -> None:
        super().__init__()
        self.run = lambda rows: self.first(rows).relu()

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        rows = torch.cat([dense, self.tables(sparse).values()], dim=1)
        return self.run(rows).sum()


def test_a_closure_over_the_model_itself_is_refused_and_leaves_no_gradients() -> None:
    model = Closure()
    with pytest.raises(ReadingError, match="reads a parameter of the model itself") as caught:
        read_operators(model)
    assert "a lambda" in (caught.value.hint or "")
    assert all(each.grad is None for each in model.parameters())


class Draws(Plain):
    """Draws by every generator that there is, and has parameters of the meta device."""

    def __init__(self) -> None:
        super().__init__()
        self.more = nn.Linear(2, 2, device="meta")

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        noise = random.random() + np.random.rand() + torch.rand(1)  # noqa: NPY002 - as scripts do
        return super().forward(dense, sparse) + 0.0 * noise.sum()


def test_random_numbers_stay_as_they_were() -> None:
    model = Draws()
    before = random.getstate(), repr(np.random.get_state()), torch.get_rng_state()  # noqa: NPY002
    read_operators(model)
    after = random.getstate(), repr(np.random.get_state())  # noqa: NPY002
    assert after == before[:2]
    assert torch.equal(torch.get_rng_state(), before[2])


class Lazy(Plain):
    """Has a layer that takes whatever comes."""

    def __init__(self) -> None:
        super().__init__()
        self.more = nn.LazyLinear(3)


def test_a_model_with_lazy_layers_is_refused() -> None:
    with pytest.raises(ReadingError, match="it has lazy layers"):
        read_operators(Lazy())


class OnData(nn.Module):
    """Runs one layer more where the batch's numbers say so."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = bags()
        self.layer = nn.Linear(2 * WIDTH, 2 * WIDTH)

    def forward(self, sparse: KeyedJaggedTensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(self.tables(sparse).values())
        if sparse.stride() > 30:
            out = self.layer(out)  # the line that is named
        return out


def test_a_model_that_runs_by_its_data_is_refused_with_the_line() -> None:
    with pytest.raises(ReadingError, match="the operators differ at") as caught:
        read_operators(OnData())
    lines = [
        number
        for number, line in enumerate(Path(__file__).read_text("utf-8").splitlines(), 1)
        if line.endswith("# the line that is named")
    ]
    assert f"{__file__}:{lines[0]}" in str(caught.value)


class Tensors(nn.Module):
    """Takes what nobody could make up."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1000, WIDTH)
        self.layer = nn.Linear(WIDTH, 1)

    def forward(self, ids: dict[str, torch.Tensor]) -> torch.Tensor:
        out: torch.Tensor = self.layer(self.table(ids["item"]))
        return out


def test_what_cannot_be_made_up_is_asked_for() -> None:
    with pytest.raises(ReadingError, match=r"its forward takes `ids` \(dict") as caught:
        read_operators(Tensors())
    assert "--batches" in (caught.value.hint or "")


def test_a_given_batch_is_cut() -> None:
    batch = {"item": torch.randint(0, 1000, (64,))}
    found = read_operators(Tensors(), [batch])
    assert found.recorded == BatchSize(64)
    assert work_of(found.at(BatchSize(1000))).forward_flop == 2 * 1000 * WIDTH
    # as it is in no table that is planned, its rows are read and trained with the rest
    assert found.parameters[0].name == "table.weight"
    planned = read_operators(Tensors(), [batch], tables=["table"])
    assert [each.name for each in planned.embeddings] == ["table"]
    assert planned.num_parameters == WIDTH + 1


class Named(Tensors):
    """Takes its arguments by name, and returns another scalar before the loss."""

    def forward(self, *, ids: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
        rows = self.table(ids)
        return {"norm": rows.square().mean(), "loss": self.layer(rows).sum()}


def test_a_dict_is_what_forward_takes_by_name_and_the_loss_what_is_called_so() -> None:
    found = read_operators(Named(), [{"ids": torch.randint(0, 1000, (64,))}])
    assert [each.trained for each in found.parameters] == [True, True, True]


class Batches:
    """What a training pipeline moves to its device."""

    def __init__(self, ids: torch.Tensor) -> None:
        self.ids = {"item": ids}

    def to(self, device: str) -> "Batches":
        return Batches(self.ids["item"].to(device))


class OfBatches(Tensors):
    """Takes a batch of a class of its own."""

    def forward(self, batch: Batches) -> torch.Tensor:  # type: ignore[override]
        return super().forward(batch.ids)


def test_a_batch_of_a_class_is_cut() -> None:
    given = Batches(torch.randint(0, 1000, (64,)))
    assert read_operators(OfBatches(), [given]).recorded == BatchSize(64)
    assert given.ids["item"].shape == (64,)


@pytest.mark.parametrize("longest", [0, 63])
def test_cuts_of_a_batch_do_not_all_have_its_longest_sequence(longest: int) -> None:
    lengths = torch.tensor([2 + n % 5 for n in range(64)])
    lengths[longest] = 40
    both = torch.cat([lengths, lengths])
    batch = KeyedJaggedTensor(
        keys=["seen", "bought"], values=torch.randint(0, 99, (int(both.sum()),)), lengths=both
    )
    found = read_operators(Transformer(), [batch])
    (group,) = found.groups
    assert set(group) == {"seen", "bought"}
    assert not any("as in all batches given" in each for each in found.assumed)


def test_sequences_of_one_length_are_said() -> None:
    both = torch.full((128,), 7)
    batch = KeyedJaggedTensor(
        keys=["seen", "bought"], values=torch.randint(0, 99, (7 * 128,)), lengths=both
    )
    found = read_operators(Transformer(), [batch])
    assert "the longest sequence of seen, bought has 7 ids, as in all batches given" in (
        found.assumed
    )


def test_of_large_batches_a_few_samples_are_taken() -> None:
    batches = [{"item": torch.randint(0, 1000, (count,))} for count in (5000, 6000, 7000)]
    assert read_operators(Tensors(), batches).recorded.samples == MOST_SAMPLES


@pytest.mark.parametrize("given", [[], [{"item": torch.zeros(2, dtype=torch.int64)}]])
def test_too_few_samples_are_refused(given: list[object]) -> None:
    with pytest.raises(ReadingError, match="too few samples"):
        read_operators(Tensors(), given)


def test_an_error_of_the_model_says_where() -> None:
    with pytest.raises(
        ReadingError, match=r"it raised KeyError: 'item' \(.*test_read_operators.py:\d+\)"
    ):
        read_operators(Tensors(), [{"other": torch.zeros(64, dtype=torch.int64)}])


class Detached(Plain):
    """Gives nothing to train by."""

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        return super().forward(dense, sparse).detach()


def test_a_model_without_a_gradient_is_refused() -> None:
    with pytest.raises(ReadingError, match="nothing that has a gradient"):
        read_operators(Detached())


def test_a_model_too_large_for_memory_runs_without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    real = read_operators(Plain())
    monkeypatch.setattr(stand_ins, "MOST_REAL_ELEMENTS", 10)
    without = read_operators(Plain())
    assert without.operators == real.operators
    assert "ran without data" in " ".join(without.assumed)
    with pytest.raises(ReadingError, match="it raised") as caught:
        read_operators(Transformer())
    assert "without data it cannot run `aten::_local_scalar_dense`" in (caught.value.hint or "")


def test_a_batch_of_torchrec_is_made_up() -> None:
    model = TORCHREC["DLRM"]()
    (batch,) = made_batches(model, dense_copy(model), [MadeSize(8)])
    (given,) = batch.arguments
    assert isinstance(given, Batch)
    assert given.dense_features.shape == (8, NUM_DENSE)


PLACE = torch.tensor([[0, 1, 3]])
GATHERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "aten::_index_put_impl_": lambda vectors: vectors[:, PLACE[0]],
    "aten::index_add_": lambda vectors: vectors.index_select(1, PLACE[0]),
    "aten::scatter_add_": lambda vectors: vectors.gather(1, PLACE.expand(len(vectors), -1)),
    "aten::scatter_": lambda vectors: vectors.max(1).values,
}


@pytest.mark.parametrize("name", GATHERS)
def test_gradients_of_gathers_are_written_in_place_as_torch_does_unwatched(name: str) -> None:
    class Gathering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = bags()

        def forward(self, sparse: KeyedJaggedTensor) -> torch.Tensor:
            return GATHERS[name](self.tables(sparse).values()).sum()

    model = Gathering()
    copy = dense_copy(model)
    (batch,) = made_batches(model, copy, [MadeSize(8)])
    backward = [each for each in record(copy, batch).operators if each.direction is Pass.BACKWARD]
    (written,) = (each for each in backward if each.name == name)
    assert written.outputs[0].storage == written.inputs[0].storage
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        copy.module(*batch.arguments).backward()
    assert name in {each.name for each in profiler.events()}


def test_attention_is_counted_as_such() -> None:
    sized = read_operators(Transformer()).at(BatchSize(8, (SequenceSize(10, 100),)))
    kinds = {family_of(each.name) for each in sized.operators}
    assert {OperatorFamily.ATTENTION, OperatorFamily.CONVOLUTION} <= kinds
    assert any(each.direction is Pass.BACKWARD for each in sized.operators)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_says_whether_it_is_causal(*, causal: bool) -> None:
    class Attending(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            heads = inputs.view(inputs.shape[0], 2, 8, 4)
            return nn.functional.scaled_dot_product_attention(
                heads, heads, heads, is_causal=causal
            ).sum()

    batches = [(torch.randn(size, 64, requires_grad=True),) for size in (2, 3, 4)]
    found = [
        each
        for each in read_operators(Attending(), batches).operators
        if family_of(each.name) is OperatorFamily.ATTENTION
    ]
    assert {each.direction for each in found} == set(Pass)
    assert {each.causal for each in found} == {causal}


class Pair(Transformer):
    """Has histories of two kinds, that must have one length if ``stacked``."""

    def __init__(self, *, stacked: bool) -> None:
        super().__init__()
        self.stacked = stacked

    def forward(self, sparse: KeyedJaggedTensor) -> torch.Tensor:
        embedded = self.items(sparse)
        seen, bought = embedded["seen"].values(), embedded["bought"].values()
        if self.stacked:
            return self.scores(torch.stack([seen, bought])).sum()
        return self.scores(seen).sum() + self.scores(bought[:, :WIDTH]).sum()


def test_sequences_have_lengths_of_their_own() -> None:
    found = read_operators(Pair(stacked=False))
    assert found.groups == (("seen",), ("bought",))
    batch = BatchSize(100, (SequenceSize(50, 3000), SequenceSize(2, 150)))
    products = [each for each in found.at(batch).operators if each.name == "aten::addmm"]
    assert [each.outputs[0].sizes for each in products] == [(3000, 1), (150, 1)]
    assert not any("one length" in each for each in found.assumed)


def test_sequences_that_must_have_one_length_are_one_group() -> None:
    found = read_operators(Pair(stacked=True))
    assert found.groups == (("seen", "bought"),)
    assert "the sequences of a sample have one length in all features" in found.assumed


def test_a_stand_in_gives_what_its_module_gives() -> None:
    real = EmbeddingBagCollection(
        tables=bags("a", "b").embedding_bag_configs(), device=torch.device("cpu")
    )
    model = Plain(real)
    copy = dense_copy(model)
    (batch,) = made_batches(model, copy, [MadeSize(8)])
    made, expected = copy.module.tables(batch.arguments[1]), real(batch.arguments[1])
    assert isinstance(made, KeyedTensor)
    assert made.keys() == expected.keys()
    assert made.length_per_key() == expected.length_per_key()
    assert made.values().shape == expected.values().shape


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_an_example_runs_is_known(name: str) -> None:
    found = read_operators(import_module(f"examples.models.{name}").make_model())
    names = {each.name for each in found.operators}
    assert not [each for each in names if family_of(each) is OperatorFamily.OTHER]
