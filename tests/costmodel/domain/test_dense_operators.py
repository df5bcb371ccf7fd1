from dataclasses import replace

import pytest
from dense_operators import listed_step, operator, tensor
from plans import table, workload

from costmodel.domain.dense_layers import (
    activation_bytes,
    dense_model_bytes,
    embedding_bytes,
    input_bytes_per_sample,
    joined_gradient_bytes,
    received_bytes,
    trained_parameters,
)
from costmodel.domain.dense_operators import machine_operators, rank_batch, rank_operators
from costmodel.domain.lengths import expected_maximum
from costmodel.domain.workload import (
    DenseModel,
    EmbeddingTable,
    Optimizer,
    Pipeline,
    Pooling,
    Workload,
)
from costmodel.operators.operator_list import BatchSize, OperatorList
from planner.files.profiles import load_profile

LISTED = replace(workload(table(dim=8)), dense=DenseModel(operators=listed_step()))
BATCH = LISTED.local_batch_size


def test_sizes_are_those_of_a_ranks_batch() -> None:
    assert rank_operators(LISTED).operators[0].outputs[0].sizes == (BATCH, 8)


def test_a_dropouts_mask_takes_a_byte_an_element_on_a_gpu() -> None:
    """On a CPU noise is drawn, scaled and multiplied with: 4 bytes an element are kept."""
    noise, given, result = (tensor((8, 16), storage) for storage in (0, -1, 1))
    three = [
        replace(operator(name, []), inputs=inputs, outputs=outputs)
        for name, inputs, outputs in (
            ("bernoulli_", (noise,), (noise,)),
            ("div_", (noise,), (noise,)),
            ("mul", (given, noise), (result,)),
        )
    ]
    listed = OperatorList(operators=tuple(three), recorded=BatchSize(8))
    h100, core = (load_profile(name).gpu for name in ("h100-sxm", "cpu-gloo"))
    (fused,) = machine_operators(listed, h100).operators
    assert fused.outputs[1].num_bytes == 8 * 16
    assert machine_operators(listed, core) is listed


def test_layers_are_no_operators() -> None:
    with pytest.raises(ValueError, match="given as layers"):
        rank_operators(workload(table()))


def sequences(
    *others: EmbeddingTable, groups: tuple[tuple[str, ...], ...] = (("h", "other"),), **more: float
) -> Workload:
    names = ("h", "other")
    unpooled = table(ids=40.0, pooling=Pooling.NONE, feature_names=names, **more)
    dense = DenseModel(operators=replace(listed_step(), groups=groups))
    return replace(LISTED, dense=dense, tables=(unpooled, *others, table("pooled", ids=900.0)))


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        # 40 ids of a sample in two features of a table: 20 each, all alike
        ((("h", "other"),), ((20, 40 * BATCH),)),
        ((("h",), ("third", "other")), ((20, 20 * BATCH), (30, (20 + 30) * BATCH))),
        ((("of no table",),), ((30, 70 * BATCH),)),
        ((), ()),
    ],
)
def test_ids_of_a_group_are_those_of_its_features(
    groups: tuple[tuple[str, ...], ...], expected: tuple[tuple[int, int], ...]
) -> None:
    third = table("third", ids=30.0, pooling=Pooling.NONE)
    assert rank_batch(sequences(third, groups=groups)) == (BATCH, expected)


def test_the_longest_sequence_is_told_or_follows_from_the_spread() -> None:
    (own,) = rank_batch(sequences(longest_bag=200.0, pooling_std=7.0)).sequences
    assert own.longest == 200
    (own,) = rank_batch(sequences(pooling_std=14.0)).sequences  # of both features, that are alike
    assert own.longest == round(20 + 7 * expected_maximum(BATCH)) > 35


def test_inputs_are_what_grows_with_the_batch_and_is_no_embedding() -> None:
    assert input_bytes_per_sample(LISTED) == 5 * 4


def test_memory_of_a_list_by_hand() -> None:
    row = 8 * 4 * BATCH
    assert activation_bytes(LISTED) == 3 * row
    assert received_bytes(LISTED) == embedding_bytes(LISTED) + row
    assert joined_gradient_bytes(LISTED) == 2 * row


@pytest.mark.parametrize(("pipeline", "copies"), [(Pipeline.SPARSE_DIST, 2), (Pipeline.DLRM, 3)])
def test_parameters_of_a_list_by_hand(pipeline: Pipeline, copies: int) -> None:
    # 40 that are trained, with Adam's two moments; 7 that are not
    dense = replace(LISTED.dense, optimizer=Optimizer.ADAM)
    work = replace(LISTED, dense=dense, pipeline=pipeline)
    assert trained_parameters(work) == (40, 1, 160.0)
    assert dense_model_bytes(work) == copies * 160 + 2 * 160 + 7 * 4


@pytest.mark.parametrize(
    "told", [{"bottom_mlp": (8,)}, {"num_dense_features": 5}, {"most_products": 10.0}]
)
def test_layers_are_not_told_beside_operators(told: dict[str, object]) -> None:
    (name,) = told
    with pytest.raises(ValueError, match=f"stand for the layers: {name} cannot be beside"):
        DenseModel(operators=listed_step(), **told)  # type: ignore[arg-type]


def test_a_list_has_no_layer_to_restore_weights_with() -> None:
    with pytest.raises(ValueError, match="restore_site is a layer of top_mlp"):
        replace(LISTED, restore_site=0)


def test_operators_are_a_list_of_them() -> None:
    with pytest.raises(ValueError, match="operators must be OperatorList"):
        DenseModel(operators="dense.json")  # type: ignore[arg-type]
