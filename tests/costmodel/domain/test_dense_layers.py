from dataclasses import replace

import pytest

from costmodel.domain.dense_layers import (
    activation_bytes,
    dense_layers,
    dense_model_bytes,
    embedding_bytes,
    interaction_width,
    joined_gradient_bytes,
    num_products,
    num_sparse_features,
    pooled_width,
    received_bytes,
    shares_bags,
    sparse_width,
)
from costmodel.domain.workload import (
    DataType,
    DenseModel,
    EmbeddingTable,
    Interaction,
    Optimizer,
    Pipeline,
    Pooling,
    Workload,
)

TABLES = tuple(
    EmbeddingTable(name=f"t{index}", num_embeddings=10, embedding_dim=8) for index in range(3)
)
DENSE = DenseModel(
    num_dense_features=4, bottom_mlp=(16, 8), interaction=Interaction.DOT, top_mlp=(5, 1)
)
WORKLOAD = Workload(tables=TABLES, dense=DENSE, local_batch_size=10)


def with_interaction(kind: Interaction) -> Workload:
    return replace(WORKLOAD, dense=replace(DENSE, interaction=kind, cross_layers=2, cross_rank=3))


def test_dot_pairs_all_vectors() -> None:
    # bottom output 8, and 3 tables + 1 bottom vector: 4 * 3 / 2 pairs
    assert interaction_width(WORKLOAD) == 8 + 6


def test_concatenation_keeps_all_columns() -> None:
    assert interaction_width(with_interaction(Interaction.CAT)) == 8 + 3 * 8


def test_layers_in_forward_order() -> None:
    assert [(layer.num_inputs, layer.num_outputs) for layer in dense_layers(WORKLOAD)] == [
        (4, 16),
        (16, 8),
        (14, 5),
        (5, 1),
    ]


def test_cross_layers_go_down_to_the_rank_and_up() -> None:
    layers = dense_layers(with_interaction(Interaction.DCN_V2))
    assert [(layer.num_inputs, layer.num_outputs) for layer in layers[2:6]] == [
        (32, 3),
        (3, 32),
        (32, 3),
        (3, 32),
    ]
    assert [layer.bias for layer in layers[2:4]] == [False, True]


def test_parameters_and_gradients_by_hand() -> None:
    parameters = (4 + 1) * 16 + (16 + 1) * 8 + (14 + 1) * 5 + (5 + 1) * 1
    assert dense_model_bytes(WORKLOAD) == 8 * parameters
    assert dense_model_bytes(replace(WORKLOAD, pipeline=Pipeline.DLRM)) == 12 * parameters
    adam = replace(WORKLOAD, dense=replace(DENSE, optimizer=Optimizer.ADAM))
    assert dense_model_bytes(adam) == 16 * parameters


def test_activations_grow_with_the_batch() -> None:
    twice = replace(WORKLOAD, local_batch_size=20)
    assert activation_bytes(twice) == 2 * activation_bytes(WORKLOAD)


def test_activations_by_hand() -> None:
    # dense input 4, MLP outputs 16 + 8 + 5 + 1; what is multiplied: 4 vectors of 8 and their 14
    # products for the dot, x0 of 32 for the others; gradients of the largest layer, or the dot's
    dot, layers = 4 + 30 + 14 + 32, 2 * 32
    assert activation_bytes(WORKLOAD) == 10 * 4 * (dot + layers)
    assert activation_bytes(with_interaction(Interaction.CAT)) == 10 * 4 * (4 + 30 + 32 + 32 + 5)
    # a cross layer: rank 3, its product 32 and its own output 32; gradients of input, output, x0
    cross = 2 * (3 + 32 + 32)
    expected = 10 * 4 * (4 + 30 + 32 + cross + 3 * 32)
    assert activation_bytes(with_interaction(Interaction.DCN_V2)) == expected


def test_received_embeddings_are_held_next_to_the_bottom_mlp() -> None:
    assert received_bytes(WORKLOAD) == 10 * 4 * (3 * 8 + 4 + 16 + 8)


def test_row_wise_states_are_elementwise_in_the_dense_model() -> None:
    rowwise = replace(WORKLOAD, dense=replace(DENSE, optimizer=Optimizer.ROWWISE_ADAGRAD))
    adagrad = replace(WORKLOAD, dense=replace(DENSE, optimizer=Optimizer.ADAGRAD))
    assert dense_model_bytes(rowwise) == dense_model_bytes(adagrad)


def test_columns_of_pooled_and_unpooled_features_by_hand() -> None:
    two = replace(TABLES[0], feature_names=("f", "g"))
    unpooled = replace(TABLES[1], pooling=Pooling.NONE, pooling_factor=3.0, bags_per_sample=0.5)
    work = replace(with_interaction(Interaction.CAT), tables=(two, unpooled))
    assert (num_sparse_features(work), sparse_width(work), pooled_width(work)) == (3, 24, 16)
    # 10 samples of 4 bytes: an embedding of 8 numbers for each feature, and three unpooled
    assert embedding_bytes(work) == 10 * 4 * (2 * 8 + 3 * 8)
    assert joined_gradient_bytes(work) == 10 * 4 * (8 + 24)


@pytest.mark.parametrize(
    ("bags", "pooling", "shared"),
    [(0.5, Pooling.SUM, True), (1.0, Pooling.SUM, False), (0.5, Pooling.NONE, False)],
)
def test_samples_share_pooled_outputs_of_less_than_a_bag_each(
    *, bags: float, pooling: Pooling, shared: bool
) -> None:
    table = replace(TABLES[0], bags_per_sample=bags, pooling=pooling)
    assert shares_bags(replace(WORKLOAD, tables=(table, *TABLES[1:]))) == shared


def test_products_of_a_sample_are_the_weights() -> None:
    assert num_products(WORKLOAD) == 4 * 16 + 16 * 8 + 14 * 5 + 5 * 1
    half = replace(WORKLOAD, dense=replace(DENSE, precision=DataType.BF16))
    assert 2 * activation_bytes(half) == activation_bytes(WORKLOAD)
    # BF16 adds a copy of half the size beside weights and gradients
    assert dense_model_bytes(half) == dense_model_bytes(WORKLOAD) * 10 / 8
