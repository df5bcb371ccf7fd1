"""Reading the dense part of a TorchRec model: as what it runs, or as MLPs where it cannot be run.

MLPs and an interaction that have all of a model's FLOP are timed as these: their host work was
measured in steps (``costmodel.step.layer_kernels``), that of other operators is a guess.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from torch import nn
from torch.nn.parameter import is_lazy

from costmodel.base.limits import MOST_PRODUCTS
from costmodel.domain.dense_layers import bottom_width, num_products, num_sparse_features
from costmodel.domain.dense_operators import rank_operators
from costmodel.domain.workload import (
    DataType,
    DenseModel,
    EmbeddingTable,
    Interaction,
    Pooling,
    Workload,
)
from costmodel.kernels.operators import HALF_TYPES
from costmodel.operators.operator_families import OperatorFamily, family_of
from costmodel.operators.operator_list import OperatorList, Size
from costmodel.operators.work import work_of
from planner.operators.reading import read_operators
from planner.operators.refusals import ReadingError
from planner.torchrec.dense_training import HALF, DenseTraining
from planner.torchrec.error_types import refusing
from planner.torchrec.modules import FoundTable, ModelReading

UNTOLD_LENGTH = 143.0
"""Largest number of ids of a sequence whose length is unknown. Layers of HSTU, read once per
sample, have 0.007 of its FLOPs, the least of 41 configurations of TorchEasyRec."""
SURE = 0.05
"""Layers are read for sure if their products are those of the model within this share."""
_PER_POSITION = (nn.MultiheadAttention, nn.RNNBase, nn.Conv1d)
_LOOKUPS = (nn.Embedding, nn.EmbeddingBag)
_TIMED_OTHERWISE = {
    "FactorizationMachine": "its sums over features are not timed",
    "InteractionProjectionArch": "its branches are timed one after the other behind a "
    "concatenation, and not their product",
}
"""TorchRec's modules of which a dense model has the layers alone, and what is not timed."""
_PER_ID = "layers may run on every id of a sequence, or every feature, and not once per sample"
_MOST_WIDTHS = 8
"""Number of layers whose widths are listed."""
_SIDE_BY_SIDE = "layers have other inputs than the layers before them"


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseReading:
    """The layers read of a model's dense part, and what was not read."""

    model: DenseModel
    flops: float
    """FLOP of a rank's forward, as it is timed."""
    num_parameters: int
    """Parameters of all modules without tables."""
    num_read: int
    unread: tuple[str, ...] = ()
    """Kinds of modules that have the other parameters."""
    otherwise: tuple[str, ...] = ()
    """What runs in another way than it is timed."""
    not_run: str = ""
    """Why the model's operators could not be read; empty: they were."""

    @property
    def is_sure(self) -> bool:
        """Whether all that the model runs is timed, or layers with (nearly) all of its work."""
        return not (self.model.most_products or self.otherwise)

    @property
    def text(self) -> str:
        """One or two sentences on what was read."""
        if not self.num_parameters:
            return "no dense part: the model has no parameters outside its tables"
        listed = self.model.operators
        if listed is not None:
            return (
                f"the dense part was read whole: {len(listed.operators):,} operators, "
                f"{self.num_parameters:,} parameters; {_flops_text(self.flops)} of a rank's forward"
            )
        read = (
            f"the dense part was read from {self.num_read:,} of {self.num_parameters:,} dense "
            "parameters"
        )
        if self.num_read:
            flops = _flops_text(self.flops)
            read += f": {_layers_text(self.model)}; {flops} of a rank's forward"
        doubts = list(self.otherwise)
        if self.is_sure and self.not_run:
            return f"{read}; what else it runs could not be read ({self.not_run})"
        if self.is_sure:
            return read
        if self.unread:
            kinds = ", ".join(self.unread)
            doubts.insert(0, f"those of {kinds} were not, and their FLOP are not known")
        if self.not_run:
            doubts.append(f"what it runs could not be read ({self.not_run})")
        return (
            f"{read}; {'; '.join(doubts)}. What that may take widens the step's interval, and "
            "lengthens the expected step; `dense` tells what there is"
        )


def read_dense(
    module: nn.Module,
    found: Sequence[FoundTable],
    tables: Sequence[EmbeddingTable],
    reading: ModelReading,
) -> DenseReading:
    """Return the dense part of a model: what it runs, or the layers that it has.

    Parameters
    ----------
    module
        The model.
    found
        Its tables, wherever they are planned: nothing below their modules is dense.
    tables
        As the workload has them.
    reading
        The batch of a rank, how the dense part is trained, and batches to run the model with.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        Layers are wider or more than a dense model's can be.

    """
    training, samples = reading.training, reading.local_batch_size
    layers = read_layers(module, {each.path for each in found}, tables, samples, training)
    if not (layers.num_parameters and tables):
        return layers
    linear = (each for each in module.modules() if isinstance(each, nn.Linear))
    try:
        listed = _operators(module, found, reading)
        dense = training.applied(DenseModel(operators=listed), linear)
        workload = Workload(tables=tuple(tables), dense=dense, local_batch_size=samples)
        flops = work_of(rank_operators(workload)).forward_flop
    except ReadingError as error:
        return replace(layers, not_run=": ".join(filter(None, (error.message, error.hint))))
    except ValueError as error:  # a tensor would be larger than any can be at this batch
        return replace(layers, not_run=str(error))
    beside = Workload(tables=tuple(tables), dense=layers.model, local_batch_size=samples)
    same = abs(_flops(beside) / max(flops, 1.0) - 1) < SURE
    if layers.is_sure and same and not _casts(listed, dense.precision):
        return layers
    return DenseReading(
        model=dense,
        flops=flops,
        num_parameters=listed.num_parameters,
        num_read=listed.num_parameters,
    )


def _operators(
    module: nn.Module, found: Sequence[FoundTable], reading: ModelReading
) -> OperatorList[Size]:
    """Return what a model runs, with given batches, or else with made ones."""
    plain = {each.path for each in found if isinstance(each.module, _LOOKUPS)}
    told = reading.training.precision
    autocast = next((theirs for theirs, ours in HALF.items() if ours is told), None)
    given = reading.forward_batches
    try:
        return read_operators(module, given or None, tables=plain, autocast=autocast)
    except ReadingError:
        if given:  # they may be features alone, and only to be counted
            with suppress(ReadingError):
                return read_operators(module, tables=plain, autocast=autocast)
        raise


def _casts(operators: OperatorList[Size], precision: DataType) -> bool:
    """Tell whether products are of half precision where the layers' are not told to be."""
    factors = (
        each.inputs[-1].data_type
        for each in operators.operators
        if family_of(each.name) is OperatorFamily.PRODUCT and each.inputs
    )
    halved = any(each in HALF_TYPES for each in factors)
    return halved and precision not in HALF_TYPES.values()


def _flops(workload: Workload) -> float:
    """Return the FLOP of a rank's forward in layers, and in the dot products between them."""
    dense, features = workload.dense, num_sparse_features(workload)
    products = num_products(workload)
    if dense.interaction is Interaction.DOT:
        products += (features + 1) ** 2 * bottom_width(workload)
    return 2.0 * products * workload.local_batch_size


def read_layers(
    module: nn.Module,
    embedding_paths: Iterable[str],
    tables: Sequence[EmbeddingTable],
    local_batch_size: int,
    training: DenseTraining,
) -> DenseReading:
    """Return the layers that the modules outside of embedding tables are read as.

    Linear layers are MLPs, those below ``dense_arch`` the bottom. Between them is what TorchRec's
    ``InteractionArch`` (in ``DLRM``) or ``LowRankCrossNet`` (in ``DLRM_DCN``) does, wherever in the
    model it is, else a concatenation. Layers without weights, as lazy ones are before their first
    batch, are no work.

    Parameters
    ----------
    module
        The model.
    embedding_paths
        Where its tables are: nothing below is dense.
    tables
        As the workload has them.
    local_batch_size
        Samples of a rank.
    training
        What is told of optimizer and precision.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        Layers are wider or more than a dense model's can be.

    """
    part = _DensePart.of(module, tuple(embedding_paths))
    with refusing(
        "the model's linear layers, in whose place IterationTimePlanner takes "
        "`dense=DenseModel(...)`"
    ):
        dense = training.applied(part.model(tables), part.linear.values())
        products = float(part.products)
        if tables:
            products = num_products(Workload(tables=tuple(tables), dense=dense))
    otherwise = list(part.timed_otherwise(dense))
    most = part.most_products(tables)
    if most and part.rows(tables) > 1:
        otherwise.append(_PER_ID)
    if part.products and abs(part.products / products - 1) > SURE:
        otherwise.append(
            f"{_SIDE_BY_SIDE}: each by itself, all layers come to "
            f"{_flops_text(2.0 * part.products * local_batch_size)}"
        )
    if most and products and abs(most / products - 1) > SURE:
        dense = replace(
            dense,
            most_products=most,
            model_parameters=part.num_parameters,
            read_parameters=part.num_read,
        )
    return DenseReading(
        model=dense,
        flops=2.0 * products * local_batch_size,
        num_parameters=part.num_parameters,
        num_read=part.num_read,
        unread=tuple(dict.fromkeys(part.unread_kinds())),
        otherwise=tuple(dict.fromkeys(otherwise)),
    )


def dense_messages(
    reading: DenseReading | None, training: DenseTraining, given: DenseModel | None
) -> tuple[str, str]:
    """Return a warning and an information about the dense part that was read; empty: none.

    A reading that is sure gives no warning. Assumptions about the training do, as they decide
    whether tables are worth replicating. Where a dense model is given, none is read.
    """
    if reading is None:
        return "" if given is None else training.beside(given), ""
    assumed = training.text(reading.model)
    if reading.is_sure and not reading.not_run:
        return assumed, reading.text
    return "\n".join(filter(None, (reading.text, assumed))), ""


@dataclass(frozen=True)
class _DensePart:
    """The modules of a model without its tables."""

    modules: Mapping[str, nn.Module]
    """By path."""

    @classmethod
    def of(cls, module: nn.Module, embedding_paths: tuple[str, ...]) -> "_DensePart":
        """Return the modules of a model that are outside of its tables."""
        return cls({
            path: each
            for path, each in module.named_modules()
            if not any(_is_below(path, above) for above in embedding_paths)
        })

    @cached_property
    def linear(self) -> dict[str, nn.Linear]:
        """Linear layers with weights, by path."""
        return {
            path: each
            for path, each in self.modules.items()
            if isinstance(each, nn.Linear) and each.in_features and each.out_features
        }

    @cached_property
    def cross(self) -> nn.Module | None:
        """The low-rank cross network."""
        found = (each for each in self.modules.values() if _is_a(each, "LowRankCrossNet"))
        return next(found, None)

    @cached_property
    def others(self) -> dict[str, nn.Module]:
        """Modules that are not read, by path."""
        read = set(map(id, self.linear.values()))
        read |= set(map(id, self.cross.modules())) if self.cross is not None else set()
        return {path: each for path, each in self.modules.items() if id(each) not in read}

    @property
    def num_parameters(self) -> int:
        """Parameters of all modules."""
        return sum(int(each.numel()) for each in _own_parameters(self.modules.values()))

    @property
    def num_read(self) -> int:
        """Parameters of the modules that are read."""
        return self.num_parameters - sum(
            int(each.numel()) for each in _own_parameters(self.others.values())
        )

    @cached_property
    def products(self) -> int:
        """Multiplications of a sample's forward in the layers read, each run once."""
        count: int = sum(each.in_features * each.out_features for each in self.linear.values())
        return count + (_num_weights(self.cross.modules()) if self.cross is not None else 0)

    @property
    def unread_products(self) -> int:
        """Multiplications in the other modules, if each of their matrices is used once."""
        return _num_weights(each for each in self.others.values() if not isinstance(each, _LOOKUPS))

    def most_products(self, tables: Sequence[EmbeddingTable]) -> float:
        """Return the most multiplications that a sample's forward may have.

        Of R rows of a sample and P weights, with A attentions of width D between the rows: every
        row is multiplied with all others, and the result with them again.

            R (P + 2 A R D)
        """
        rows, weights = self.rows(tables), float(self.products + self.unread_products)
        if rows > 1 and weights:
            width = max(table.embedding_dim for table in tables)
            weights += self.most_attentions * 2 * rows * width
        return min(rows * weights, MOST_PRODUCTS)

    @property
    def most_attentions(self) -> int:
        """Return the largest number of attentions there may be.

        Each has matrices of its own: in a module that is not read, or as four linear layers for
        queries, keys, values and output.
        """
        own = sum(_num_weights([each]) > 0 for each in self.others.values())
        return max(1, own, len(self.linear) // 4)

    def model(self, tables: Sequence[EmbeddingTable]) -> DenseModel:
        """Return the dense model: the layers, and the interaction of TorchRec's modules."""
        bottom = [layer for path, layer in self.linear.items() if "dense_arch" in path]
        top = [layer for path, layer in self.linear.items() if "dense_arch" not in path]
        dense = DenseModel(
            num_dense_features=bottom[0].in_features if bottom else self._dense_features(tables),
            bottom_mlp=tuple(layer.out_features for layer in bottom),
            top_mlp=tuple(layer.out_features for layer in top) or (1,),
        )
        if self.cross is not None:
            width_by_rank = [each.shape for each in self.cross.parameters() if each.dim() > 1]
            return replace(
                dense,
                interaction=Interaction.DCN_V2,
                cross_layers=len(width_by_rank) // 2,
                cross_rank=min(width_by_rank[0]),
            )
        widths = {each.embedding_dim for each in tables} | set(dense.bottom_mlp[-1:])
        if self._has("InteractionArch") and bottom and len(widths) == 1:
            return replace(dense, interaction=Interaction.DOT)
        return dense

    def _dense_features(self, tables: Sequence[EmbeddingTable]) -> int:
        """Return how many inputs of the first layer are not embeddings of pooled tables."""
        first = next(iter(self.linear.values()), None)
        pooled = all(each.pooling is not Pooling.NONE for each in tables)
        if first is None or not tables or not pooled or self.cross is not None:
            return 1
        embedded = sum(each.num_features * each.embedding_dim for each in tables)
        return max(1, int(first.in_features) - embedded)

    def rows(self, tables: Sequence[EmbeddingTable]) -> float:
        """Return the largest number of rows per sample that layers may run on."""
        sequences = [each for each in tables if each.pooling is Pooling.NONE]
        if sequences:
            longest = max(each.pooling_factor / each.num_features for each in sequences)
            return longest if longest > 1 else UNTOLD_LENGTH
        if any(isinstance(each, _PER_POSITION) for each in self.modules.values()):
            return float(sum(each.num_features for each in tables))
        return 1.0

    def timed_otherwise(self, dense: DenseModel) -> Iterator[str]:
        """Yield what TorchRec's modules do that no dense model has."""
        for name, reason in _TIMED_OTHERWISE.items():
            if self._has(name):
                yield f"{name}: {reason}"
        if self._has("InteractionArch") and dense.interaction is not Interaction.DOT:
            yield "InteractionArch: its dot products are not timed"

    def unread_kinds(self) -> Iterator[str]:
        """Yield the kinds of modules whose parameters are not read."""
        for path, each in self.others.items():
            if next(each.parameters(recurse=False), None) is None:
                continue
            owner = each
            if isinstance(each, nn.ParameterList | nn.ParameterDict):
                owner = self.modules.get(path.rpartition(".")[0], each)
            kind = type(owner)
            yield f"nn.{kind.__name__}" if kind.__module__.startswith("torch.") else kind.__name__

    def _has(self, name: str) -> bool:
        return any(_is_a(each, name) for each in self.modules.values())


def _is_below(path: str, above: str) -> bool:
    return not above or path == above or path.startswith(f"{above}.")


def _is_a(module: nn.Module, name: str) -> bool:
    """Return whether a module is of a TorchRec class, by name and without importing it."""
    return any(
        kind.__name__ == name and kind.__module__.startswith("torchrec.")
        for kind in type(module).__mro__
    )


def _own_parameters(modules: Iterable[nn.Module]) -> Iterator[nn.Parameter]:
    """Yield the modules' own parameters, each once, if they have a shape already."""
    seen = set()
    for module in modules:
        for parameter in module.parameters(recurse=False):
            if id(parameter) not in seen and not is_lazy(parameter):
                seen.add(id(parameter))
                yield parameter


def _num_weights(modules: Iterable[nn.Module]) -> int:
    """Return the number of weights in parameters that are no vectors."""
    return sum(int(each.numel()) for each in _own_parameters(modules) if each.dim() > 1)


def _layers_text(dense: DenseModel) -> str:
    between = str(dense.interaction)
    if dense.interaction is Interaction.DCN_V2:
        between += f" of {dense.cross_layers} layers of rank {dense.cross_rank}"
    bottom = f"bottom_mlp {_widths_text(dense.bottom_mlp)}, " if dense.bottom_mlp else ""
    return f"{bottom}{between}, top_mlp {_widths_text(dense.top_mlp)}"


def _widths_text(widths: Sequence[int]) -> str:
    """Return the widths of layers as text; of many, the first and their number."""
    if len(widths) <= _MOST_WIDTHS:
        return str(list(widths))
    first = ", ".join(map(str, widths[:_MOST_WIDTHS]))
    return f"[{first}, ...] of {len(widths)} layers"


def _flops_text(flops: float) -> str:
    unit, name = next(
        (each for each in ((1e12, "TFLOP"), (1e9, "GFLOP")) if flops >= each[0]), (1e6, "MFLOP")
    )
    return f"{flops / unit:.3g} {name}"
