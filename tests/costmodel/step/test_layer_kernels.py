"""The dense kernels of a step, on a model small enough to count them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from formulas import built
from hypothesis import given
from hypothesis import strategies as st
from machines import topology
from plans import BATCH, collectives, named, step, table, workload

from costmodel.base.units import MIB
from costmodel.domain.dense_layers import dense_layers
from costmodel.domain.hardware import Bound, Source
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DataType, DenseModel, Interaction, Workload
from costmodel.kernels.gemm import gemm_estimate
from costmodel.step.buckets import BUCKET, FIRST_BUCKET, GradientBuckets
from costmodel.step.builder import StepBuilder
from costmodel.step.dense_kernels import DenseCosts, DenseKernel
from costmodel.step.graph import NodeKind, Stage
from costmodel.step.layer_kernels import LayerKernels

DOT = DenseModel(bottom_mlp=(128, 64), top_mlp=(256, 1), interaction=Interaction.DOT)


def builder(world_size: int = 2) -> StepBuilder:
    return StepBuilder(topology(world_size))


def layers(dense: DenseModel = DOT, output_type: DataType = DataType.FP32) -> LayerKernels:
    work = replace(workload(table("a"), table("b")), dense=dense, output_type=output_type)
    return LayerKernels(DenseCosts(work, topology(2).hardware.gpu))


def names(kernels: Sequence[DenseKernel]) -> list[str]:
    return [each.name for each in kernels]


def test_widths_around_a_dot_interaction() -> None:
    # 3 vectors of 64 columns; their 3 products beside the bottom output
    widths = layers().costs.widths
    assert (widths.vectors, widths.columns, widths.top_inputs) == (3, 192, 67)


def test_parameters_by_hand() -> None:
    # 13 -> 128 -> 64 and 67 -> 256 -> 1, with biases
    numbers = 14 * 128 + 129 * 64 + 68 * 256 + 257
    costs = layers().costs
    assert sum(layer.num_parameters for layer in dense_layers(costs.workload)) == numbers


def test_products_of_other_shapes_are_not_mixed_up() -> None:
    costs = layers().costs
    shapes = [(64, 128, 256), (64, 128, 512), (128, 64, 256), (256, 128, 64), (64, 256, 256)]
    expected = [gemm_estimate(*shape, DOT.precision, costs.gpu) for shape in shapes]
    for _ in range(2):  # computed, then known
        assert [costs.product_estimate(*shape) for shape in shapes] == expected
    assert len({estimate.seconds for estimate in expected}) > 1


def test_a_layer_is_a_product_and_its_activation() -> None:
    found = names(layers().bottom_forward())
    assert len(found) == 4
    assert [name.endswith("relu") for name in found] == [False, True, False, True]


def test_backward_of_the_first_layer_needs_no_input_gradient() -> None:
    found = names(layers().bottom_backward())
    assert len([name for name in found if name.endswith("input")]) == 1
    assert len([name for name in found if name.endswith("weight")]) == 2


def casts(kernels: Sequence[DenseKernel]) -> list[str]:
    return [name.removesuffix(" cast") for name in names(kernels) if name.endswith("cast")]


def mixed(output_type: DataType = DataType.FP32) -> LayerKernels:
    return layers(replace(DOT, precision=DataType.BF16), output_type=output_type)


def test_mixed_precision_casts_features_and_every_weight() -> None:
    assert casts(mixed().bottom_forward()) == ["dense features", "bottom.0", "bottom.1"]


def test_mixed_precision_casts_both_operands_of_a_dot_product() -> None:
    forward, backward = mixed().interaction_forward(), mixed().interaction_backward()
    assert casts(forward) == ["dot interaction left", "dot interaction right"]
    assert casts(backward) == ["dot interaction backward left", "dot interaction backward right"]


ALL, DENSE, SPARSE = (4 * 256 * columns for columns in (192, 64, 128))
"""Bytes of the features of 256 samples: of the dense part's output, and of two tables."""


@pytest.mark.parametrize(
    ("kind", "name", "num_bytes"),
    [
        (Interaction.DOT, "zero triangle", 4 * 256 * 3**2),
        (Interaction.DOT, "copy interactions' gradient", 8 * 256 * 3),  # 3 pairs, read and written
        (Interaction.DOT, "add gradients", 3 * ALL),  # two are read, their sum is written
        (Interaction.DOT, "add dense features' gradients", 3 * DENSE),
        (Interaction.DOT, "split features", 2 * SPARSE),
        (Interaction.DCN_V2, "cross.2.w times x0 backward", 2 * 3 * ALL),  # of both factors
        (Interaction.DCN_V2, "cross.1.v add gradients", 2 * 3 * ALL),
        (Interaction.DCN_V2, "concat features backward", 2 * SPARSE),
    ],
)
def test_bytes_of_an_interaction_s_backward(kind: Interaction, name: str, num_bytes: float) -> None:
    found = layers(replace(DOT, interaction=kind)).interaction_backward()
    assert [each.num_bytes for each in found if each.name == name] == [num_bytes]


def test_features_in_half_precision_are_multiplied_as_they_are() -> None:
    found = mixed(DataType.BF16).interaction_forward()
    assert casts(found) == []
    assert found[0].name == "concat features"


def test_a_cross_layer_of_mixed_precision_is_fp32() -> None:
    # 4-byte numbers of BATCH x (64 + 2 x 64), read twice and written once
    cross = replace(DOT, interaction=Interaction.DCN_V2, precision=DataType.BF16)
    found = layers(cross).interaction_forward()
    times = [each for each in found if each.name == "cross.0.w times x0"]
    assert [each.num_bytes for each in times] == [3 * 4 * BATCH * 192]
    assert casts(found)[:3] == ["cross.0.v input", "cross.0.v", "cross.0.w"]


def test_a_loss_of_mixed_precision_is_fp32() -> None:
    assert names(mixed().top_forward())[-3:] == ["logits cast", "loss", "sum of losses"]


def messages(*gradients: float) -> list[float]:
    made = builder()
    buckets = GradientBuckets(made, "g")
    for num_bytes in gradients:
        buckets.add(num_bytes)
    buckets.flush()
    reduced = [op for op in built(made).ops if op.kind is NodeKind.COLLECTIVE]
    assert [op.stage for op in reduced] == [Stage.ALL_REDUCE] * len(reduced)
    return [float(op.num_bytes[0]) for op in reduced]


def test_the_first_bucket_is_small_and_the_others_25_mib() -> None:
    # 0.5 + 0.6 fills 1 MiB; then 10 + 10 + 10 fills 25 MiB; 3 are left
    sizes = [0.5 * MIB, 0.6 * MIB, 10 * MIB, 10 * MIB, 10 * MIB, 3 * MIB]
    assert messages(*sizes) == pytest.approx([1.1 * MIB, 30 * MIB, 3 * MIB])


def test_an_all_reduce_says_where_its_time_comes_from() -> None:
    # the made-up machine has no curves: nothing of the kind was measured
    made = builder()
    buckets = GradientBuckets(made, "g")
    buckets.add(100 * MIB)
    reduced = built(made).ops[-1]
    assert reduced.basis == (Bound.LINK_BANDWIDTH, Source.ASSUMED, True)


def test_a_gradient_is_never_split_over_buckets() -> None:
    assert messages(100 * MIB) == [100 * MIB]


@given(st.lists(st.floats(1.0, 40 * MIB), min_size=1, max_size=20))
def test_buckets_lose_nothing(gradients: list[float]) -> None:
    sizes = messages(*gradients)
    assert sum(sizes) == pytest.approx(sum(gradients))
    assert all(size >= BUCKET for size in sizes[1:-1])
    assert len(sizes) == 1 or sizes[0] >= FIRST_BUCKET


def test_one_rank_reduces_nothing() -> None:
    made = builder(1)
    buckets = GradientBuckets(made, "g")
    buckets.add(100 * MIB)
    buckets.flush()
    assert not built(made).ops


def test_one_rank_under_distributed_model_parallel_copies_gradients() -> None:
    made = builder(1)
    buckets = GradientBuckets(made, "g", wraps_one_rank=True)
    buckets.add(100 * MIB)
    buckets.flush()
    assert [op.name for op in built(made).ops if op.kind is NodeKind.KERNEL] == ["g bucket copy"]
    assert collectives(built(made)) == []
    assert not buckets.sent


def test_gradients_are_reduced_from_the_top_down() -> None:
    # top: 1024 x (64 + 3 x 64) + ... fill the first bucket before the bottom MLP is reached
    wide = DenseModel(bottom_mlp=(64,), top_mlp=(1024, 1024, 1), interaction=Interaction.CAT)
    work: Workload = replace(workload(table()), dense=wide)
    made = step(work, topology(2), ShardingType.TABLE_WISE, 0)
    first, last = (op for op in collectives(made) if op.name == "dense all-reduce")
    # 1025 numbers are not enough; with 1024 x 1025 more they are
    assert first.num_bytes[0] == 4 * (1025 + 1024 * 1025)
    (gradients,) = named(made, "table_wise gradients")
    assert made.ops.index(first) < made.ops.index(gradients) < made.ops.index(last)
