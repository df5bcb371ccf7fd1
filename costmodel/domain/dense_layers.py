"""The dense part of a DLRM as a list of layers, with their products and bytes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from costmodel.base.units import Bytes
from costmodel.domain.dense_operators import operators_held_bytes, operators_input_bytes
from costmodel.domain.workload import DataType, Interaction, Pipeline, Pooling, Workload
from costmodel.operators.operator_list import DenseParameter

_HALF = (DataType.FP16, DataType.BF16)


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseLayer:
    """A fully connected layer."""

    name: str
    num_inputs: int
    num_outputs: int
    bias: bool = True
    activated: bool = True
    """Whether a ReLU follows."""
    ends_cross: bool = False
    """Whether it is the second product of a cross layer, to which the layer's input is added."""

    @property
    def num_parameters(self) -> int:
        """Weights and biases."""
        return self.num_inputs * self.num_outputs + (self.num_outputs if self.bias else 0)


@lru_cache(maxsize=16)
def num_sparse_features(workload: Workload) -> int:
    """Return the number of features of all tables."""
    return sum(table.num_features for table in workload.tables)


@lru_cache(maxsize=16)
def sparse_width(workload: Workload) -> int:
    """Return the columns of all features' embeddings side by side."""
    return sum(table.num_features * table.embedding_dim for table in workload.tables)


@lru_cache(maxsize=16)
def pooled_width(workload: Workload) -> int:
    """Return the columns of pooled features' embeddings, which TorchRec concatenates in order."""
    return sum(
        table.num_features * table.embedding_dim
        for table in workload.tables
        if table.pooling is not Pooling.NONE
    )


@lru_cache(maxsize=16)
def shares_bags(workload: Workload) -> bool:
    """Return whether samples share pooled outputs, which are spread over them (VBE)."""
    return any(
        table.pooling is not Pooling.NONE and table.bags_per_sample < 1 for table in workload.tables
    )


def bottom_width(workload: Workload) -> int:
    """Return the width of the bottom MLP's output."""
    dense = workload.dense
    return dense.bottom_mlp[-1] if dense.bottom_mlp else dense.num_dense_features


def interaction_width(workload: Workload) -> int:
    """Return the width of the top MLP's input.

    Dot: the bottom output beside the F (F + 1) / 2 products of F + 1 vectors. Concatenation and
    DCNv2: the bottom output beside all embeddings.

    References
    ----------
    Naumov et al., DLRM, arXiv 1906.00091, section 2.1; Wang et al., DCN V2, arXiv 2008.13535.

    """
    if workload.dense.interaction is Interaction.DOT:
        features = num_sparse_features(workload)
        return bottom_width(workload) + features * (features + 1) // 2
    return bottom_width(workload) + sparse_width(workload)


def dense_layers(workload: Workload) -> tuple[DenseLayer, ...]:
    """Return every layer in forward order: bottom MLP, cross network, top MLP."""
    return (*bottom_layers(workload), *cross_layers(workload), *top_layers(workload))


def bottom_layers(workload: Workload) -> tuple[DenseLayer, ...]:
    """Return the layers of the bottom MLP, each with a ReLU."""
    dense = workload.dense
    return tuple(_mlp("bottom", dense.num_dense_features, dense.bottom_mlp))


def top_layers(workload: Workload) -> tuple[DenseLayer, ...]:
    """Return the layers of the top MLP; the last one gives the logit, without a ReLU."""
    layers = tuple(_mlp("top", interaction_width(workload), workload.dense.top_mlp))
    return (*layers[:-1], replace(layers[-1], activated=False))


def cross_layers(workload: Workload) -> tuple[DenseLayer, ...]:
    """Return the two products of every low-rank cross layer of DCNv2: X -> rank -> X."""
    dense = workload.dense
    if dense.interaction is not Interaction.DCN_V2:
        return ()
    width, rank = interaction_width(workload), dense.cross_rank
    pairs = (
        (
            DenseLayer(
                name=f"cross.{index}.v",
                num_inputs=width,
                num_outputs=rank,
                bias=False,
                activated=False,
            ),
            DenseLayer(
                name=f"cross.{index}.w",
                num_inputs=rank,
                num_outputs=width,
                activated=False,
                ends_cross=True,
            ),
        )
        for index in range(dense.cross_layers)
    )
    return tuple(layer for pair in pairs for layer in pair)


def _mlp(name: str, num_inputs: int, widths: Sequence[int]) -> Iterator[DenseLayer]:
    for index, width in enumerate(widths):
        yield DenseLayer(name=f"{name}.{index}", num_inputs=num_inputs, num_outputs=width)
        num_inputs = width


@lru_cache(maxsize=16)
def num_products(workload: Workload) -> float:
    """Return the multiplications of a sample's forward in all layers: one for each weight."""
    return float(sum(layer.num_inputs * layer.num_outputs for layer in dense_layers(workload)))


class TrainedParameters(NamedTuple):
    """Parameters of the dense part that the optimizer updates."""

    num_elements: int
    num_tensors: int
    num_bytes: Bytes
    """Bytes of the parameters; their gradients are as large."""


@lru_cache(maxsize=16)
def trained_parameters(workload: Workload) -> TrainedParameters:
    """Return the parameters that the optimizer updates; those of layers are FP32."""
    if workload.dense.operators is not None:
        trained = [each for each in workload.dense.operators.parameters if each.trained]
        return TrainedParameters(
            sum(each.num_elements for each in trained),
            len(trained),
            sum(each.num_bytes for each in trained),
        )
    layers = dense_layers(workload)
    count = sum(layer.num_parameters for layer in layers)
    return TrainedParameters(count, sum(1 + layer.bias for layer in layers), 4.0 * count)


def _listed_parameters(workload: Workload) -> Sequence[DenseParameter]:
    operators = workload.dense.operators
    return () if operators is None else operators.parameters


def dense_model_bytes(workload: Workload) -> Bytes:
    """Return bytes of parameters, gradients, DDP buckets and optimizer state on every rank.

    Parameters and gradients are as large as each other, 4 P of layers; automatic mixed precision
    adds a half-precision copy of the weights, 2 P. DDP's buckets are a second copy of the gradients
    in plain DLRM; TorchRec wraps with ``gradient_as_bucket_view``, where they are the gradients.

    References
    ----------
    torchrec, distributed/model_parallel.py, ``DefaultDataParallelWrapper``, and embeddingbag.py.

    """
    trained = trained_parameters(workload)
    copies = 3 if workload.pipeline is Pipeline.DLRM else 2
    half = 2 if workload.dense.precision in _HALF else 0
    state = workload.dense.optimizer.elementwise.state_bytes_per_row(trained.num_elements)
    fixed = sum(each.num_bytes for each in _listed_parameters(workload) if not each.trained)
    return copies * trained.num_bytes + half * trained.num_elements + state + fixed


def activation_bytes(workload: Workload, num_top_layers: int | None = None) -> Bytes:
    """Return bytes that a local batch holds in the dense model, between forward and backward.

    With ``num_top_layers``, the bytes left when the other layers of the top MLP have had their
    backward.

    Per sample, saved for the backward: the dense input, what the interaction multiplies, every
    layer's output. On top of that the gradients of one layer's input and output, or those of the
    interaction: of both factors of a dot product, of a cross layer's input, output and x0.

    Notes
    -----
    A linear layer's output before its activation is not counted: autograd keeps the input of
    each layer, and that is the output of the activation. Nor are looked-up embeddings: they are
    copied next to one another, and a copy saves nothing. The copy is what a dot interaction
    multiplies, and with ``cat`` it is the top MLP's input. A cross layer saves the input of each
    of its products, the second one's output, and its own.

    References
    ----------
    torchrec 1.9.2, models/dlrm.py, modules/crossnet.py ``LowRankCrossNet``; live tensors at the
    peak of real steps (bench/results/conformity_memory.md).

    """
    if workload.dense.operators is not None:
        return operators_held_bytes(workload).peak
    dense, width = workload.dense, interaction_width(workload)
    cross = cross_layers(workload)
    layers = (*bottom_layers(workload), *cross, *top_layers(workload)[:num_top_layers])
    widths = [
        dense.num_dense_features,
        width,
        *(layer.num_outputs for layer in layers),
        *(layer.num_outputs for layer in cross if layer.ends_cross),
    ]
    gradients = [width, *(layer.num_inputs + layer.num_outputs for layer in layers)]
    if dense.interaction is Interaction.DOT:
        widths.append(sparse_width(workload) + bottom_width(workload))
        gradients.append(2 * widths[-1])
    elif dense.interaction is Interaction.DCN_V2:
        gradients.append(3 * width)
    held = float(sum(widths) + max(gradients))
    return workload.local_batch_size * _element_bytes(workload) * held


def received_bytes(workload: Workload) -> Bytes:
    """Return bytes that a local batch holds while lookups are exchanged, before the dense peak.

    The embeddings received, and the bottom MLP's activations.
    """
    if workload.dense.operators is not None:
        return embedding_bytes(workload) + operators_held_bytes(workload).at_lookups
    bottom = [workload.dense.num_dense_features, *workload.dense.bottom_mlp]
    held = float(_element_bytes(workload) * sum(bottom))
    return embedding_bytes(workload) + workload.local_batch_size * held


def joined_gradient_bytes(workload: Workload) -> Bytes:
    """Return bytes of the gradient of bottom output and embeddings side by side.

    ``cat``'s backward gives each of them a view of it, so that it is held until the bottom MLP's
    backward begins: while the embeddings' gradients are exchanged.
    """
    if workload.dense.operators is not None:
        return operators_held_bytes(workload).at_exchange
    columns = bottom_width(workload) + sparse_width(workload)
    return float(workload.local_batch_size * _element_bytes(workload) * columns)


def input_bytes_per_sample(workload: Workload) -> Bytes:
    """Return bytes of a sample's dense features and label."""
    if workload.dense.operators is not None:
        return operators_input_bytes(workload) / workload.local_batch_size
    return 4.0 * workload.dense.num_dense_features + 4.0


def embedding_bytes(workload: Workload) -> Bytes:
    """Return bytes of a local batch's embeddings, as a rank receives them."""
    columns = sum(table.output_rows_per_sample * table.embedding_dim for table in workload.tables)
    return workload.local_batch_size * workload.output_type.num_bytes * columns


def _element_bytes(workload: Workload) -> int:
    return 2 if workload.dense.precision in _HALF else 4
